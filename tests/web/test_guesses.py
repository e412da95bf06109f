"""What counts as one origin of guesses."""

from __future__ import annotations

from outlast.base.clock import SYSTEM
from outlast.web.sign_in import ADDRESS_TRIES, Guesses


def test_a_site_of_ipv6_has_no_more_tries_than_one_address() -> None:
    guesses = Guesses(SYSTEM)
    for network in range(ADDRESS_TRIES):
        guesses.count(f"user-{network}", f"2001:db8:1:{network:x}::1")
    assert guesses.wait("ada", "2001:db8:1:ffff::1") > 0
    assert guesses.wait("ada", "2001:db8:2::1") == 0

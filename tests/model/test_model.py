"""A small exploration of each scene, over the store's own code; and broken variants.

Large ones: ``make model``.
"""

from __future__ import annotations

import pytest

from tests.model.explore import explore
from tests.model.leases import LEASES, reachable
from tests.model.scenes import SCENES, alone
from tests.model.twins import TWINS, caught

STATES = 400
AT_ONCE = {  # twins that `make test-all` plays, too
    "no token check in complete",
    "attempts go on after the lease",
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", SCENES)
def test_no_step_breaks_a_law(name: str) -> None:
    found = explore(SCENES[name], states_max=STATES)
    assert found.wrong == "", "\n".join([found.wrong, *found.path])
    assert found.states >= STATES


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_with_one_job_every_state_is_explored_and_leads_to_an_end() -> None:
    found = explore(alone(SCENES["transactions"]))
    assert found.wrong == "", "\n".join([found.wrong, *found.path])
    assert found.closed
    assert found.states > 2_000


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", LEASES)
def test_no_state_of_a_lease_breaks_a_law(name: str) -> None:
    states, wrong, path = reachable(*LEASES[name])
    assert wrong == "", "\n".join([wrong, *path])
    assert states > 1_000


@pytest.mark.long_but(*AT_ONCE)
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", TWINS)
def test_a_broken_variant_is_caught(name: str) -> None:
    found = caught(name)
    assert found.wrong.startswith(TWINS[name][1]), found.wrong or f"{found.states} states: nothing"
    assert found.path or found.wrong.startswith("no_job_is_lost")

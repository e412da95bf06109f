"""``outlast pause``, ``resume`` and ``pauses``: what is said, the exit codes, and a real worker."""

from __future__ import annotations

from harness.servers import PostgresServer
from tests.cli.conftest import Filled, Outlast


def test_what_is_paused_is_listed_and_explained_until_it_is_resumed(rows: Filled) -> None:
    said = rows("pause", "queue", "default", "--reason", "it burns", "--by", "ada",
                   "--wait", "0")  # fmt: skip
    said.refused(1, "the queue 'default' is paused, but 1 worker has not acknowledged it yet: ")
    document = rows("pauses", "--json").json()
    (one,) = document["pauses"]
    shown = {name: one[name] for name in ("kind", "name", "paused_by", "reason", "stop")}
    assert shown == {
        "kind": "queue",
        "name": "default",
        "paused_by": "ada",
        "reason": "it burns",
        "stop": False,
    }
    assert len(one["unacknowledged"]) == 1
    listed = rows("pauses").out
    assert "The queue 'default' has been paused for" in listed
    assert "by ada: it burns. But 1 worker has not acknowledged it yet" in listed
    assert "-> outlast resume queue default" in listed
    assert rows.job(rows.ids["queued"])["phase"] == "paused"
    assert "The queue 'default' has been paused" in rows("job", rows.ids["queued"]).out
    why = rows("why", rows.ids["queued"]).out
    assert "-> `outlast resume queue default` lets it start again." in why
    found = rows("jobs", "--state", "paused", "--json").json()["jobs"]
    assert rows.ids["queued"] in {each["id"] for each in found}
    assert {each["phase"] for each in found} == {"paused"}
    assert "paused     queue default" in rows("stats").out
    assert rows("resume", "queue", "default").code == 0
    again = rows("resume", "queue", "default")
    again.refused(1, "the queue 'default' is not paused: see `outlast pauses`")
    assert rows("pauses").out == "nothing is paused\n"


def test_a_name_that_nothing_has_is_paused_with_a_warning(filled: Filled) -> None:
    for kind in ("queue", "task", "tenant"):
        said = filled("pause", kind, "typo", "--wait", "0")
        assert f"no job and no worker has the {kind} 'typo': it is paused all the same" in said.err


def test_nothing_is_said_to_be_paused_that_is_not(
    outlast: Outlast, pg_server: PostgresServer, pg_url: str
) -> None:
    name = pg_url.rpartition("/")[2]
    pg_server.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    said = outlast("pause", "queue", "typo", "--url", pg_url)
    said.refused(3, "the database is read-only")
    assert "paused" not in said.out + said.err

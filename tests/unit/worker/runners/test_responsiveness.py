"""A blocked loop is reported, and its time counts only for the attempt that blocks it."""

from __future__ import annotations

import pytest

from outlast import events
from outlast.model.crash import Progress
from outlast.model.job import Policy
from outlast.runner.protocol import FunctionsEnded, Hello, Ping, Pong, Reported, Stop, TaskInfo
from outlast.worker.runners.responsiveness import BLOCKED_SECONDS, CREDIT_SECONDS_MAX
from outlast.worker.runners.watchdog import PATIENCE_SECONDS
from tests.unit.worker.runners.pool_kit import SHARED, Bench, FakeRunner, shared
from tests.unit.worker.worker_kit import claimed

LOOK = 0.25


def dump_of(token: int) -> str:
    return (
        "Current thread 0x1 (most recent call first):\n"
        '  File "user.py", line 5 in blocks\n'
        f'  File "marks.py", line 1 in outlast_attempt_{token}\n'
    )


class Watch:
    """A watchdog over a pool with one runner, which answers unless it is ``blocked``."""

    def __init__(self, *redact: str) -> None:
        self.bench = Bench(size=1, redact=redact)
        self.clock = self.bench.clock
        self.blocked = False
        self.heard: list[tuple[str, dict]] = []
        self.dog = self.bench.pool.watchdog

    @property
    def runner(self) -> FakeRunner:
        return self.bench.runners[0]

    async def run(self, *policies: Policy) -> None:
        """Place attempts 1, 2, … with these policies in one runner."""
        await self.bench.ready(**{SHARED: False})
        self.bench.place(*(shared(token, policy=one) for token, one in enumerate(policies, 1)))
        assert len(self.runner.tokens) == len(policies)

    async def run_call(self, *policies: Policy) -> None:
        """Let one call of a batch task have attempts 1, 2, … with these policies."""
        await self.bench.ready(**{SHARED: False})
        for runner in self.bench.runners:
            runner.says(Hello([TaskInfo("batch", own_runner=True, batch=9)], None, "3"))
        its = (claimed(token, "batch", policy=one) for token, one in enumerate(policies, 1))
        self.bench.place(*its)
        assert len(self.runner.tokens) == len(policies)

    async def look(self) -> None:
        self.answer()
        await self.dog.run_once()
        self.answer()

    def answer(self) -> None:
        pings = [frame.seq for frame in self.runner.sent if isinstance(frame, Ping)]
        if pings and not self.blocked:
            self.runner.says(Pong(pings[-1]))

    async def after(self, seconds: float) -> None:
        """Let time pass in looks."""
        for _ in range(round(seconds / LOOK)):
            self.clock.advance(LOOK)
            await self.look()

    async def blocked_by(self, token: int, seconds: float) -> None:
        """Let this attempt block the loop for so long, or longer."""
        self.blocked, self.runner.dump = True, dump_of(token)
        await self.after(seconds)

    def stops(self) -> list[tuple[int, str]]:
        return [
            (frame.token, frame.reason) for frame in self.runner.sent if isinstance(frame, Stop)
        ]

    def events(self, name: str) -> list[dict]:
        return [fields for said, fields in self.heard if said == name]


@pytest.fixture
def watch(request):
    watch = Watch(*getattr(request, "param", ()))
    end = events.subscribe(lambda name, fields: watch.heard.append((name, fields)))
    yield watch
    end()


FREE = Policy()
CALL = 0  # in the stacks of a call for many jobs


async def test_a_responsive_loop_is_probed_once_a_second_without_events(watch):
    await watch.run(FREE)
    await watch.after(60)
    assert 55 <= sum(isinstance(frame, Ping) for frame in watch.runner.sent) <= 61
    assert watch.runner.dumps == 0
    assert watch.events("loop_blocked") == []


async def test_a_runner_without_work_is_not_asked(watch):
    await watch.bench.ready()
    await watch.after(10)
    assert not any(runner.sent for runner in watch.bench.runners)


async def test_a_blocked_loop_and_its_end_are_each_reported_once_with_the_line(watch):
    await watch.run(FREE, FREE)
    await watch.after(2)
    await watch.blocked_by(2, 4)
    assert watch.events("loop_blocked") == []
    await watch.after(20)
    (told,) = watch.events("loop_blocked")
    assert told["seconds"] >= BLOCKED_SECONDS
    assert (told["job_id"], told["token"], told["pid"]) == (2, 2, watch.runner.pid)
    assert told["line"] == 'File "user.py", line 5 in blocks'
    assert told["stack"] == dump_of(2)
    watch.blocked = False
    await watch.after(2)
    assert len(watch.events("loop_unblocked")) == 1
    assert watch.stops() == watch.runner.kills == []
    watch.blocked = True
    await watch.after(10)
    assert len(watch.events("loop_blocked")) == 2


@pytest.mark.parametrize("watch", [("user",)], indirect=True)
async def test_what_is_redacted_is_in_no_stack_of_a_blocked_loop(watch):
    await watch.run(FREE)
    await watch.after(2)
    await watch.blocked_by(1, 20)
    (told,) = watch.events("loop_blocked")
    assert told["token"] == 1, "which attempt blocks is read from the whole stack"
    assert told["line"] == 'File "[redacted].py", line 5 in blocks'
    assert told["stack"] == dump_of(1).replace("user", "[redacted]")


async def test_a_worker_that_slept_blames_no_attempt_for_missing_answers(watch):
    await watch.run(Policy(unresponsive_timeout=10.0))
    watch.blocked = True
    watch.runner.dump = dump_of(1)
    await watch.after(1)
    watch.clock.advance(3600)
    await watch.look()
    await watch.after(2)  # in which the answer would be read
    assert watch.events("loop_blocked") == []
    assert watch.stops() == []


async def test_an_attempt_that_blocks_too_long_is_unresponsive_and_gets_a_second_at_most(watch):
    await watch.run(FREE, Policy(unresponsive_timeout=8.0, cancel_grace=60.0))
    await watch.after(2)
    await watch.blocked_by(2, 7)
    assert watch.stops() == []
    await watch.after(3)
    assert watch.stops() == [(2, "unresponsive")]
    await watch.after(1.5)
    assert watch.runner.kill_reason == "unresponsive"
    watch.runner.dies(signal="SIGKILL", stacks=dump_of(2))
    innocent, culprit = watch.bench.ends()
    assert (innocent.outcome, innocent.charge) == ("released", "none")
    assert (culprit.outcome, culprit.charge) == ("unresponsive", "failure")
    assert "blocks" in culprit.message


async def test_a_runner_that_is_being_killed_is_not_probed(watch):
    await watch.run(Policy(timeout=3.0), FREE)
    await watch.after(1)
    await watch.blocked_by(2, BLOCKED_SECONDS + 3)
    assert watch.runner.kill_reason == "unresponsive"
    sent, dumps = len(watch.runner.sent), watch.runner.dumps
    await watch.after(10)
    assert (len(watch.runner.sent), watch.runner.dumps) == (sent, dumps)


async def test_attempts_behind_a_blocked_loop_are_not_stopped_at_their_limit(watch):
    await watch.run(Policy(timeout=3.0), Policy(timeout=7.0))
    await watch.after(1)
    await watch.blocked_by(2, 5)
    assert watch.stops() == []
    await watch.after(3)
    assert watch.stops() == [(2, "timeout")]  # its own limit
    await watch.after(1)
    watch.runner.dies(signal="SIGKILL")
    assert watch.bench.outcomes() == ["released", "timeout"]


async def test_neighbours_limits_end_a_blocker_without_one(watch):
    await watch.run(Policy(timeout=3.0), FREE)
    await watch.after(1)
    await watch.blocked_by(2, BLOCKED_SECONDS + 1)
    assert watch.stops() == [(2, "unresponsive")]
    await watch.after(1.5)
    watch.runner.dies(signal="SIGKILL")
    innocent, culprit = watch.bench.ends()
    assert (innocent.outcome, innocent.charge) == ("released", "none")
    assert (culprit.outcome, culprit.charge) == ("unresponsive", "failure")


@pytest.mark.parametrize(
    ("waits", "blocks", "seconds", "reason"),
    [
        (Policy(unresponsive_timeout=8.0), Policy(unresponsive_timeout=8.0), 8.0, "unresponsive"),
        (Policy(timeout=3.0), Policy(timeout=3600.0), 2 + PATIENCE_SECONDS, "unresponsive"),
        (FREE, Policy(timeout=3.0), 2.0, "timeout"),
    ],
    ids=["both alike", "a long limit, and a neighbour's", "its own limit"],
)
async def test_only_the_one_that_blocks_is_ended(watch, waits, blocks, seconds, reason):
    await watch.run(waits, blocks)
    await watch.after(1)
    await watch.blocked_by(2, seconds - 0.5)
    assert watch.stops() == []
    await watch.after(2)
    assert watch.stops() == [(2, reason)]
    line = 'File "user.py", line 5 in blocks'
    assert [each["line"] for each in watch.events("loop_blocked")] == [line]


async def test_without_a_known_blocker_all_are_bystanders(watch):
    await watch.run(Policy(timeout=3.0), FREE)
    await watch.after(1)
    watch.blocked = True  # and it shows no stacks, as a stopped process
    await watch.after(BLOCKED_SECONDS + 3)
    assert watch.stops() == []
    assert watch.runner.kill_reason == "unanswered"
    watch.runner.dies(signal="SIGKILL")
    assert [(end.outcome, end.charge) for end in watch.bench.ends()] == [("bystander", "loss")] * 2


async def test_alone_in_its_runner_an_attempt_needs_no_mark_to_be_named(watch):
    await watch.run(Policy(timeout=3.0))
    await watch.after(1)
    watch.blocked, watch.runner.dump = True, "Current thread 0x1\n  File x, line 1 in select\n"
    await watch.after(3.5)
    assert watch.stops() == [(1, "timeout")]


async def test_a_neighbour_regains_the_blocked_time(watch):
    await watch.run(Policy(timeout=10.0), FREE)
    await watch.after(2)
    await watch.blocked_by(2, 4)
    watch.blocked = False
    await watch.after(7)
    assert watch.stops() == []
    await watch.after(1.5)
    assert watch.stops() == [(1, "timeout")]


async def test_a_neighbour_that_was_blocked_for_longer_than_reapers_allow_is_given_back(watch):
    """By then any worker would close it as overdue, and charge it."""
    await watch.run(Policy(timeout=10.0), Policy(timeout=3600.0))
    await watch.after(2)
    await watch.blocked_by(2, 9)
    watch.blocked = False
    await watch.after(10 + CREDIT_SECONDS_MAX - 11 - LOOK)
    assert watch.stops() == []
    await watch.after(1)
    assert watch.stops() == [(1, "blocked")]
    await watch.after(2)  # it does not obey
    watch.runner.dies(signal="SIGKILL")
    assert [(end.outcome, end.charge) for end in watch.bench.ends()] == [("released", "none")] * 2


async def test_where_no_attempt_can_be_named_none_regains_more_than_the_bound(watch):
    """The one that blocks may be any of them."""
    await watch.run(Policy(timeout=20.0), FREE)
    await watch.after(2)
    watch.blocked = True
    await watch.after(12)
    watch.blocked = False
    await watch.after(20 + CREDIT_SECONDS_MAX - 14 - LOOK)
    assert watch.stops() == []
    await watch.after(1)
    assert watch.stops() == [(1, "timeout")]


async def test_limits_count_from_the_start_of_the_code_not_from_the_hand_over(watch):
    await watch.bench.ready(**{SHARED: False})
    watch.runner.waits = True
    limits = Policy(timeout=10.0, stall_timeout=6.0)
    watch.bench.place(shared(1), shared(2, policy=limits))
    watch.runner.begins(1)
    await watch.blocked_by(1, 4)
    watch.blocked = False
    watch.runner.begins(2)
    await watch.after(5)
    assert watch.stops() == []
    watch.runner.says(Reported(2, Progress(0.5)))
    watch.bench.in_flight.note_progress(2, Progress(0.5))
    await watch.after(4)
    assert watch.stops() == []
    await watch.after(1.5)
    assert watch.stops() == [(2, "timeout")]


async def test_an_attempt_that_did_not_begin_in_time_is_given_back_uncharged(watch):
    await watch.bench.ready(**{SHARED: False})
    watch.runner.waits = True
    watch.bench.place(shared(1, policy=Policy(timeout=3.0)))
    await watch.after(3 + CREDIT_SECONDS_MAX - LOOK)
    assert watch.stops() == []
    await watch.after(1)
    assert watch.stops() == [(1, "blocked")]


async def test_an_attempt_that_blocks_before_its_start_was_told_is_charged_at_its_limit(watch):
    await watch.bench.ready(**{SHARED: False})
    watch.runner.waits = True
    policy = Policy(timeout=3.0)
    watch.bench.place(shared(1, policy=policy), shared(2, policy=policy))
    await watch.blocked_by(2, 4)
    assert watch.stops() == [(2, "timeout")]


async def test_the_timeout_does_not_count_once_the_function_has_ended(watch):
    await watch.run(Policy(timeout=3.0))
    await watch.after(2)
    watch.runner.says(FunctionsEnded([1]))
    await watch.after(1 + CREDIT_SECONDS_MAX - LOOK)
    assert watch.stops() == []
    await watch.after(1)
    assert watch.stops() == [(1, "timeout")]  # what runs around it has no more than this


async def test_a_slow_answer_delays_a_stop_and_blames_no_attempt(watch):
    """As on a machine short of processor time."""
    await watch.run(Policy(timeout=3.0), FREE)
    await watch.after(2.5)
    await watch.blocked_by(2, 4)
    assert watch.stops() == []
    watch.blocked = False
    await watch.after(4)
    assert watch.stops() == [(1, "timeout")]  # its own limit, later than usual


async def test_an_answer_to_another_question_counts_for_nothing(watch):
    await watch.run(FREE)
    watch.blocked = True
    await watch.after(2)
    watch.runner.says(Pong(99))
    await watch.after(6)
    assert len(watch.events("loop_blocked")) == 1


@pytest.mark.parametrize("slept", [60.0, 30_000.0])
@pytest.mark.parametrize(
    ("reason", "policy"),
    [("timeout", Policy(timeout=20.0)), ("stalled", Policy(stall_timeout=20.0))],
)
async def test_time_in_which_worker_and_runner_stood_still_moves_each_limit(
    watch, reason, policy, slept
):
    await watch.run(policy)
    watch.runner.begins(1)
    await watch.after(5.0)
    for _ in range(2):
        began = watch.clock.boot()
        watch.clock.advance(slept)
        watch.runner.says(Pong(99))  # before the first look
        await watch.dog.run_once()
        assert watch.stops() == [], "the runner has not said whether it ran"
        pings = [frame.seq for frame in watch.runner.sent if isinstance(frame, Ping)]
        watch.runner.says(Pong(pings[-1], [(began + 0.4, watch.clock.boot())]))
        watch.heard.clear()
        await watch.look()
        (fields,) = watch.events("runner_stood_still")
        assert (fields["pid"], fields["attempts"]) == (watch.runner.pid, 1)
        assert slept - 1 < fields["seconds"] <= slept
        assert watch.bench.checkpoints.reports == [1], "for the deadline on the row"
        watch.bench.checkpoints.reports.clear()
    await watch.after(13.0)
    assert watch.stops() == []
    await watch.after(2.5)
    assert watch.stops() == [(1, reason)]


async def test_a_worker_that_was_stopped_alone_gives_its_attempts_no_time(watch):
    await watch.run(Policy(timeout=20.0))
    watch.runner.begins(1)
    await watch.after(5.0)
    watch.clock.advance(60.0)
    await watch.look()
    await watch.look()
    assert watch.stops() == [(1, "timeout")]


async def test_a_begin_that_a_worker_reads_late_since_it_was_stopped_counts_from_its_time(watch):
    await watch.bench.ready(**{SHARED: False})
    watch.runner.waits = True
    watch.bench.place(shared(1, policy=Policy(timeout=20.0)))
    begin = watch.runner.begin_of(1)
    watch.clock.advance(60.0)
    watch.runner.says(begin)
    await watch.look()
    await watch.look()
    assert watch.stops() == [(1, "timeout")]


async def test_the_jobs_of_a_call_that_blocks_its_loop_are_each_charged_at_their_limits(watch):
    await watch.run_call(Policy(timeout=3.0), Policy(timeout=3.0), FREE)
    await watch.after(2)
    await watch.blocked_by(CALL, 3)
    assert sorted(watch.stops()) == [(1, "timeout"), (2, "timeout")]
    await watch.after(1.5)
    assert watch.runner.kill_reason == "timeout"
    watch.runner.dies(signal="SIGKILL", stacks=dump_of(CALL))
    ends = watch.bench.ends()
    assert [(end.outcome, end.charge) for end in ends] == [
        ("timeout", "failure"),
        ("timeout", "failure"),
        ("released", "none"),
    ]


async def test_time_in_which_a_call_blocks_its_loop_is_time_of_each_of_its_jobs(watch):
    await watch.run_call(Policy(timeout=4.0), Policy(timeout=4.0))
    await watch.blocked_by(CALL, 2)
    watch.blocked = False
    await watch.after(2.5)
    assert sorted(watch.stops()) == [(1, "timeout"), (2, "timeout")]


async def test_a_call_that_blocks_its_loop_is_reported_with_the_line(watch):
    await watch.run_call(FREE, FREE)
    await watch.blocked_by(CALL, 8)
    (told,) = watch.events("loop_blocked")
    assert (told["job_id"], told["token"]) == (None, None)
    assert told["line"] == 'File "user.py", line 5 in blocks'
    assert watch.stops() == watch.runner.kills == []

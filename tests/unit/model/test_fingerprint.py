"""What alike deaths have in common, and what tells others apart."""

from __future__ import annotations

from outlast.model.crash import Crash, CrashKind, find_line, find_place, fingerprint_of, own_stack
from outlast.model.job import JobFacts, Policy, State
from outlast.model.lifecycle import Outcome, OutcomeKind, decide
from tests.cases import each_case

TRACEBACK = """Traceback (most recent call last):
  File "/srv/{release}/shop/jobs.py", line {line}, in charge
    card.pay()
  File "/srv/{release}/venv/lib/python3.11/site-packages/stripe/api.py", line 9, in pay
    raise CardDeclined
stripe.CardDeclined: no
"""
STACKS = """Thread 0x1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/srv/shop/jobs.py", line 7 in wait_for_stock
  File "/srv/shop/jobs.py", line 3 in outlast_attempt_9

Current thread 0x2 (most recent call first):
  File "/srv/shop/other.py", line 1 in loop
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/app/shop/many.py", line 4, in gather
  | ExceptionGroup: several (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/app/shop/one.py", line 2, in leaf
    | ValueError: x
"""


def crash(**fields: object) -> Crash:
    return Crash(**({"kind": CrashKind.ERROR, "exception": "stripe.CardDeclined"} | fields))  # type: ignore[arg-type]


def raised(line: int = 3, release: str = "r1") -> Crash:
    return crash(traceback=TRACEBACK.format(line=line, release=release))


def test_the_place_is_the_innermost_frame_of_the_users_own_code() -> None:
    assert find_place(raised()) == "shop/jobs.py in charge"
    assert find_place(crash(stacks=STACKS)) == "shop/jobs.py in wait_for_stock"
    fatal = f"Fatal Python error: Segmentation fault\n\n{STACKS}"
    assert find_place(crash(stacks=fatal)) == "shop/other.py in loop"
    assert find_place(crash(traceback=GROUP)) == "shop/one.py in leaf"
    assert find_place(crash()) is None


SIGNALLED = """Fatal Python error: Aborted

Thread 0x1 (most recent call first):
  File "/srv/shop/jobs.py", line 8 in aborts
  File "/srv/lib/outlast/runner/stacks.py", line 37 in outlast_attempt_9

Thread 0x3 (most recent call first):
  File "/srv/shop/metrics.py", line 8 in send

Current thread 0x2 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 468 in select
  File "/srv/lib/outlast/runner/main.py", line 292 in main
"""


def test_a_signal_that_met_the_main_thread_is_placed_in_the_thread_of_the_task() -> None:
    assert find_place(crash(stacks=SIGNALLED)) == "shop/jobs.py in aborts"
    in_main = SIGNALLED.replace("/usr/lib/python3.11/selectors.py", "/srv/shop/loop.py")
    assert find_place(crash(stacks=in_main)) == "shop/loop.py in select"
    of_a_library = SIGNALLED.replace("/srv/shop/", "/v/site-packages/")
    assert find_place(crash(stacks=of_a_library)) == "python3.11/selectors.py in select"


def test_people_are_shown_the_line_and_the_stack_of_the_task_without_our_frames() -> None:
    assert find_line(crash(stacks=SIGNALLED)) == "shop/jobs.py:8 in aborts"
    assert find_line(raised(line=3)) == "shop/jobs.py:3 in charge"
    assert find_line(crash()) is None
    own, others = own_stack(SIGNALLED)
    assert others == 2
    assert own.splitlines() == [
        "Thread 0x1 (most recent call first):",
        '  File "/srv/shop/jobs.py", line 8 in aborts',
    ]
    assert own_stack("nothing to see") == ("", 0)


def test_of_an_error_raised_from_another_one_the_last_counts() -> None:
    first = TRACEBACK.format(line=1, release="r").replace("in charge", "in look_up")
    text = f"{first}\nDuring handling of the above exception, …\n\n{raised().traceback}"
    assert find_place(crash(traceback=text)) == "shop/jobs.py in charge"


def test_where_all_frames_are_of_libraries_it_is_the_innermost() -> None:
    only = 'Traceback (most recent call last):\n  File "/v/site-packages/a/b.py", line 1, in c\nX'
    assert find_place(crash(traceback=only)) == "a/b.py in c"


@each_case("text", ["", "\0", 'File "', "Traceback (most recent call last)", "\ud800"])
def test_a_text_that_is_no_traceback_has_no_place(text: str) -> None:
    assert find_place(crash(traceback=text)) is None
    assert len(fingerprint_of(text, text, crash(exception=text))) == 16


def test_lines_and_folders_of_a_release_make_no_difference() -> None:
    alike = {fingerprint_of("t", "error", raised(line, f"r{line}")) for line in (1, 2, 99)}
    assert len(alike) == 1


def test_task_kind_exception_and_place_each_make_one() -> None:
    told = [
        fingerprint_of("t", "error", raised()),
        fingerprint_of("u", "error", raised()),
        fingerprint_of("t", "timeout", raised()),
        fingerprint_of("t", "error", crash(exception="ValueError", traceback=raised().traceback)),
        fingerprint_of("t", "error", crash()),
        fingerprint_of("t", "error", None),
    ]
    assert len(set(told)) == len(told)


def test_an_end_carries_it_exactly_where_the_job_is_dead_after_it() -> None:
    facts = JobFacts(job_id=1, token=1, policy=Policy(retries=1), task="t")
    last = JobFacts(job_id=1, token=1, policy=Policy(retries=0), task="t")
    broken = Outcome(kind=OutcomeKind.CRASHED, crash=raised())
    assert decide(facts, broken, lambda: 0.5).fingerprint is None
    died = decide(last, broken, lambda: 0.5)
    assert died.state is State.DEAD
    assert died.fingerprint == fingerprint_of("t", "error", raised())
    given_up = decide(facts, Outcome(kind=OutcomeKind.DEAD, message="no"), lambda: 0.5)
    assert given_up.fingerprint == fingerprint_of("t", "dead", None)

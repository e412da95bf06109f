"""Changes that a task makes to its process are undone: tried in real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HEAD = """
import faulthandler, json, os, signal, sys, tempfile, time
from outlast.runner.process_state import ProcessState

os.environ["KEPT"], os.environ["CHANGED"], os.environ["TZ"] = "1", "1", "UTC"
time.tzset()
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
os.umask(0o022)
report = os.dup(1)


def seen():
    mask = os.umask(0)
    os.umask(mask)
    return [
        os.path.realpath(os.curdir), mask, dict(os.environ), time.tzname,
        [signal.getsignal(each) for each in (signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM)],
        [os.fstat(fd).st_ino for fd in range(3)],
        [(id(each), each.closed) for each in (sys.stdin, sys.stdout, sys.stderr)],
        signal.getitimer(signal.ITIMER_REAL),
    ]


before, state = seen(), ProcessState(report)
assert state.restore() == []
"""
TAIL = """
changes = state.restore()
assert state.restore() == [], "once"
print("stdout can be written")
os.write(report, json.dumps([changes, seen() == before]).encode())
"""
CASES = {
    "os.umask(0o077)": ["umask"],
    "os.chdir('/')": ["working directory"],
    "d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)": ["working directory"],
    "os.environ['NEW'] = 'secret'; os.environ['CHANGED'] = '2'": [
        "variable CHANGED",
        "variable NEW",
    ],
    "del os.environ['KEPT']": ["variable KEPT"],
    "os.environ['TZ'] = 'EST5'; time.tzset()": ["variable TZ"],
    "os.environ = {'OTHER': 'x'}": ["environment"],
    "os.close(1)": ["descriptor 1"],
    "sys.stdout.close()": ["sys.stdout"],
    "os.close(0); os.close(2)": ["descriptor 0", "descriptor 2"],
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)": ["handler of SIGTERM"],
    "signal.signal(signal.SIGUSR1, print); signal.signal(signal.SIGALRM, print)": [
        "handler of SIGALRM",
        "handler of SIGUSR1",
    ],
    "signal.alarm(1000)": ["timer"],
    "log = tempfile.TemporaryFile(); os.dup2(log.fileno(), 1)": ["descriptor 1"],
    "os.dup2(os.open('/dev/zero', 0), 0); os.dup2(report, 2)": ["descriptor 0", "descriptor 2"],
    "sys.stdout = tempfile.TemporaryFile('w')": ["sys.stdout"],
    "sys.stdin = None; del sys.stderr": ["sys.stderr", "sys.stdin"],
    "faulthandler.disable()": ["faulthandler"],
    "faulthandler.enable(); faulthandler.enable(sys.__stdout__)": ["faulthandler"],
    "os.environb[b'NO_TEXT_\\xff'] = b'1'": ["variable NO_TEXT_\ufffd"],
    "pass": [],
}

OWN_WRITER = "import codecs; sys.stdout = codecs.getwriter('utf-8')(sys.stdout.detach())"
# what the kernel would do to a later task: end its process, or refuse it something
KERNEL_CASES = {
    "signal.setitimer(signal.ITIMER_VIRTUAL, 99)": ["timer"],
    "signal.signal(signal.SIGPROF, print); signal.setitimer(signal.ITIMER_PROF, 99)": [
        "handler of SIGPROF",
        "timer",
    ],
    "signal.signal(signal.SIGVTALRM, print); signal.signal(signal.SIGXCPU, print)": [
        "handler of SIGVTALRM",
        "handler of SIGXCPU",
    ],
    "limit('CPU', 99); limit('AS', 2**40)": ["limit AS", "limit CPU"],
    "limit('NOFILE', 12)": ["limit NOFILE"],
}
LIMITS = """
import resource
def limit(name, soft, hard=None):
    number = getattr(resource, "RLIMIT_" + name)
    resource.setrlimit(number, (soft, resource.getrlimit(number)[1] if hard is None else hard))
def limits():
    timers = [signal.getitimer(each) for each in (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)]
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    return timers, [resource.getrlimit(getattr(resource, name)) for name in names]
begun = limits()
"""
TAGS = """
from outlast.runner.printing import tag_output
tag_output(lambda: None)
tagged = sys.stdout.buffer
"""


# One interpreter for all cases: each runs in a fork of it, with an output of its own.
FORKS = """
import json, os, sys
import outlast.runner.process_state

for number, code in enumerate(json.load(sys.stdin)):
    if not os.fork():
        output = os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_RDWR)
        os.dup2(output, 1)
        os.close(output)
        exec(code, {})
        sys.exit()
    if os.wait()[1]:
        sys.exit(f"failed: {code}")
"""


def run(code: str, folder: Path) -> tuple[list[str], bool]:
    [report] = run_all([code], folder)
    return report


def run_all(codes: list[str], folder: Path) -> list[tuple[list[str], bool]]:
    """Run each program in a process of its own; return what each has reported."""
    with tempfile.TemporaryDirectory() as outputs:
        done = subprocess.run(
            [sys.executable, "-c", FORKS, outputs],
            cwd=folder,
            input=json.dumps(codes),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [reported(Path(outputs, str(number)).read_text()) for number in range(len(codes))]


def reported(output: str) -> tuple[list[str], bool]:
    said, _, report = output.rpartition("[[")
    assert said in {"", "stdout can be written\n"}
    changes, as_before = json.loads("[[" + report.replace("stdout can be written\n", ""))
    return sorted(changes), as_before


def test_changes_by_a_task_are_undone_and_named_without_values(tmp_path: Path) -> None:
    tails = {  # it is another one, which is open
        "sys.stdout.close()": TAIL.replace("seen() == before", "not sys.stdout.closed")
    }
    reports = run_all([HEAD + task + tails.get(task, TAIL) for task in CASES], tmp_path)
    assert dict(zip(CASES, reports, strict=True)) == {
        task: (changes, True) for task, changes in CASES.items()
    }


def test_no_timer_or_limit_of_a_task_is_left_for_the_next_one(tmp_path: Path) -> None:
    """Its signal would end the process under the next task, which would be charged."""
    tail = TAIL.replace("seen() == before", "limits() == begun")
    reports = run_all([HEAD + LIMITS + task + tail for task in KERNEL_CASES], tmp_path)
    assert dict(zip(KERNEL_CASES, reports, strict=True)) == {
        task: (changes, True) for task, changes in KERNEL_CASES.items()
    }


def test_no_task_s_dump_ends_the_process_under_the_next_one(tmp_path: Path) -> None:
    task = "log = tempfile.TemporaryFile(); held = sys.getrefcount(log)\n"
    task += "faulthandler.dump_traceback_later(99, exit=True, file=log)"
    tail = TAIL.replace("seen() == before", "sys.getrefcount(log) == held")
    assert run(HEAD + task + tail, tmp_path) == ([], True)


def test_a_limit_that_cannot_be_raised_again_spoils_the_runner(tmp_path: Path) -> None:
    common = "if not os.getuid(): os.setuid(65534)\nassert not state.is_spoiled\n"
    tail = TAIL.replace("seen() == before", "state.is_spoiled")
    code = HEAD + LIMITS + common + "limit('FSIZE', 10**6, 10**6)" + tail
    assert run(code, tmp_path) == (["limit FSIZE"], True)


@pytest.mark.parametrize("left_open", [58, 64])
def test_a_runner_whose_descriptors_run_out_is_spoiled(left_open: int, tmp_path: Path) -> None:
    """The next task could open nothing, and would be charged."""
    begun = HEAD.replace("before, state", LIMITS + "limit('NOFILE', 64)\nbefore, state")
    task = f"held = [os.dup(0)]\nwhile held[-1] < {left_open - 1}: held.append(os.dup(0))"
    tail = "left = state.is_spoiled\n" + TAIL.replace("seen() == before", "state.is_spoiled > left")
    assert run(begun + task + "\n" + tail, tmp_path) == (["descriptors left open"], True)


def test_what_the_application_has_opened_itself_spoils_no_runner(tmp_path: Path) -> None:
    """It was replaced after each attempt, with another one that had opened as much."""
    own = "own = [os.dup(0)]\nwhile own[-1] < 54: own.append(os.dup(0))\n"
    begun = HEAD.replace("before, state", LIMITS + "limit('NOFILE', 64)\n" + own + "before, state")
    tail = TAIL.replace("seen() == before", "state.is_spoiled")
    assert run(begun + tail, tmp_path) == ([], False)


def test_a_renamed_working_directory_is_restored(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    task = "os.rename('../a', '../b'); os.chdir('/')"
    tail = TAIL.replace("seen() == before", "os.getcwd().endswith('/b')")
    assert run(HEAD + task + tail, tmp_path / "a") == (["working directory"], True)


def test_a_deleted_working_directory_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    tail = TAIL.replace("seen() == before", "True")
    assert run(HEAD + "os.rmdir('../a')" + tail, tmp_path / "a")[0] == ["working directory"]


def test_the_state_before_the_first_task_is_kept(tmp_path: Path) -> None:
    """A lifespan that sets a timer and a handler needs them."""
    wanted = "signal.signal(signal.SIGALRM, print); signal.setitimer(signal.ITIMER_REAL, 999, 9)"
    code = HEAD.replace("report = os", f"{wanted}\nreport = os").replace("before, state", "state")
    code = code.replace("seen(), ", "")
    tail = TAIL.replace("seen() == before", "signal.getitimer(signal.ITIMER_REAL)[1] == 9")
    assert run(code + tail, tmp_path) == ([], True)


MODES = [
    "encoding='ascii'",
    "errors='ignore'",
    "line_buffering=not held.line_buffering",
    "write_through=not held.write_through",
]


def test_a_stream_that_a_task_reconfigured_is_as_the_application_left_it(tmp_path: Path) -> None:
    """Handlers of logging hold the stream: it stays the same object."""
    cases = [(name, mode) for name in ("stdout", "stderr") for mode in MODES]
    reports = run_all([reconfigured(*case) for case in cases], tmp_path)
    assert dict(zip(cases, reports, strict=True)) == {
        case: ([f"sys.{case[0]}"], True) for case in cases
    }


def reconfigured(name: str, mode: str) -> str:
    modes = "(held.encoding, held.errors, held.line_buffering, held.write_through)"
    first = f"held = sys.{name}; held.reconfigure(encoding='latin-1'); was = {modes}"
    code = HEAD.replace("report = os", f"{first}\nreport = os") + f"held.reconfigure({mode})"
    return code + TAIL.replace("seen() == before", f"held is sys.{name} and was == {modes}")


def test_the_application_may_have_taken_the_buffer_of_a_stream(tmp_path: Path) -> None:
    code = HEAD.replace("report = os", "bare = sys.stderr.detach()\nreport = os")
    code = code.replace("before, state = seen(), ", "state = ")
    code = code.replace("assert state.restore() == []", "state.restore()")
    tail = TAIL.replace("seen() == before", "not sys.stderr.closed")
    assert run(code + tail, tmp_path) == ([], True)


@pytest.mark.parametrize("task", ["bare = sys.stdout.detach()", OWN_WRITER], ids=["bare", "own"])
def test_a_stream_whose_buffer_a_task_took_can_be_written(task: str, tmp_path: Path) -> None:
    """As old code does, to write in an encoding of its own; output stays tagged."""
    code = HEAD.replace("before, state", TAGS + "before, state")
    tail = TAIL.replace("seen() == before", "not sys.stdout.closed")
    tail = tail.replace('print("', r'assert sys.stdout.buffer is tagged; print("')
    assert run(code + task + tail, tmp_path) == (["sys.stdout"], True)

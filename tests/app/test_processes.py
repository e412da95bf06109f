"""Programs that fork, end, receive signals or use several event loops while they enqueue."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow_on("sqlite")  # connections can be lost on PostgreSQL alone

PROGRAM = """
import asyncio, atexit, gc, os, signal, sys, threading, time
def goodbye():  # before Outlast is there: it is called when that has said its own goodbye
    if LATE:
        print("late", LATE[0].enqueue_sync("late").id > 0, flush=True)
LATE = []
atexit.register(goodbye)
import outlast
app = outlast.App()
@app.task
def mail(to: str) -> None: ...
def sessions():
    if not app.url.startswith("postgresql"):
        return set()
    import psycopg
    with psycopg.connect(app.url) as mine:
        rows = mine.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'outlast'")
        return {pid for pid, in rows}
"""


GREENLETS = """
from gevent import joinall, monkey, sleep, spawn
monkey.patch_all()
import asyncio, outlast
app = outlast.App()
@app.task
def mail(to: str) -> None: ...
async def work():
    async with app.worker():
        pass
try:
    asyncio.run(work())
except outlast.errors.ApplicationError as error:
    print(error)
for _ in range(2):
    calls = [spawn(mail.enqueue_sync, str(n)) for n in range(20)]
    joinall(calls)
    print(len({call.get().id for call in calls}))
async def enqueue():
    return await mail.enqueue("in a loop")
jobs = [asyncio.run(enqueue()), spawn(asyncio.run, enqueue()).get(), mail.enqueue_sync("last")]
app.close_sync()
def turn():
    while True:
        turns.append(1)
        sleep(0.001)
turns = []
spawn(turn)
waiting = spawn(mail.enqueue_sync("no worker").result_sync, timeout=60)
while len(turns) < 20:
    sleep(0.01)
waiting.kill()
print([job.id for job in jobs], mail.enqueue_sync("after").id)
"""


# Of a fork beside threads, from Python 3.12 on: those of Outlast survive it.
WARNING = "ignore:This process:DeprecationWarning"


def run(program: str, url: str, folder: Path, *, but: str = "") -> str:
    """Run a program to its end; return its output. It reports no error except ``but``."""
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            WARNING,
            "-c",
            program if program is GREENLETS else PROGRAM + program,
        ],
        cwd=folder,
        env={**os.environ, "OUTLAST_URL": url},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stderr.replace(but, ""), done.returncode) == ("", 0)
    return done.stdout


def test_greenlets_of_a_web_server_enqueue_and_run_no_worker(
    store_url: str, tmp_path: Path
) -> None:
    """They share one thread; none of them runs in the event loop of another."""
    refused, *stored = run(GREENLETS, store_url, tmp_path).splitlines()
    assert stored == ["20", "20", "[41, 42, 43] 45"]
    assert "gevent's monkey.patch_all()" in refused


LATE_GREENLETS = """
import warnings; warnings.simplefilter("ignore")  # of gevent, which comes late
mail.enqueue_sync("parent")
ends = []
for _ in range(8):
    if not (child := os.fork()):
        signal.alarm(60)
        from gevent import joinall, monkey, spawn
        monkey.patch_all()
        for _ in range(2):
            joinall([spawn(mail.enqueue_sync, "child") for _ in range(5)], raise_error=True)
        sys.exit(0)
    ends.append(os.waitpid(child, 0)[1])
print(sum(ends), mail.enqueue_sync("parent").id)
"""


def test_greenlets_of_a_server_that_has_preloaded_the_application_enqueue(
    store_url: str, tmp_path: Path
) -> None:
    """As in gunicorn -k gevent --preload, which patches only its children."""
    assert run(LATE_GREENLETS, store_url, tmp_path) == "0 82\n"


PREFORK = """
mail.enqueue_sync("parent")
before = sessions()
children = []
for n in range(4):
    if not (child := os.fork()):
        for _ in range(5):
            mail.enqueue_sync(f"child {n}")
        sys.exit(0)  # the interpreter ends as it does without a fork
    children.append(child)
assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
assert before <= sessions(), "a child has ended a session of its parent"
print(mail.enqueue_sync("parent").id)
"""


THREADED_PREFORK = """
if USED:
    mail.enqueue_sync("parent")
children = []
for n in range(3):
    if not (child := os.fork()):
        ids = []
        def serve():
            for _ in range(10):
                ids.append(mail.enqueue_sync("child").id)
        threads = [threading.Thread(target=serve) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert len(set(ids)) == 40
        sys.exit(0)
    children.append(child)
assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 3
print(mail.enqueue_sync("parent").id - USED)
"""


@pytest.mark.parametrize("used", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_threads_of_a_server_that_has_preloaded_the_application_enqueue(
    used: int, store_url: str, tmp_path: Path
) -> None:
    """As in gunicorn with --preload and --threads."""
    assert run(f"USED = {used}\n{THREADED_PREFORK}", store_url, tmp_path) == "121\n"


FORKED_UNSEEN = """
import ctypes
mail.enqueue_sync("parent")
if not (child := ctypes.PyDLL(None).fork()):  # as uWSGI does it
    signal.alarm(30)
    try:
        mail.enqueue_sync("child")
    except outlast.UsageError as error:
        print(error, flush=True)
    sys.exit(0)
print(os.waitpid(child, 0)[1], mail.enqueue_sync("parent").id)
"""


def test_a_child_whose_fork_python_has_not_seen_says_what_to_set(
    store_url: str, tmp_path: Path
) -> None:
    error, rest = run(FORKED_UNSEEN, store_url, tmp_path).splitlines()
    assert "--py-call-uwsgi-fork-hooks" in error
    assert rest == "0 2"


RESTING_LOOP = """
loop = asyncio.new_event_loop()
loop.run_until_complete(mail.enqueue("parent"))
before = sessions()
if not (child := os.fork()):
    sys.exit(0)
os.waitpid(child, 0)
assert before <= sessions(), "a child has ended a session of its parent"
print(loop.run_until_complete(asyncio.wait_for(mail.enqueue("parent"), 30)).id)
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
"""


OUT_OF_A_LOOP = """
import multiprocessing
async def main():
    await mail.enqueue("parent")
    before = sessions()
    child = multiprocessing.get_context("fork").Process(target=mail.enqueue_sync, args=["child"])
    child.start()
    await asyncio.to_thread(child.join)
    assert child.exitcode == 0 and before <= sessions()
    for _ in range(3):
        last = await mail.enqueue("parent")
    print(last.id)
asyncio.run(main())
"""


BUSY_PARENT = """
going, ids = True, [mail.enqueue_sync("parent").id]  # all that is needed is imported
def enqueue():
    while going:
        ids.append(mail.enqueue_sync("parent").id)
threads = [threading.Thread(target=enqueue) for _ in range(2)]
for thread in threads: thread.start()
for n in range(5):
    if not (child := os.fork()):
        mail.enqueue_sync("child")
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
going = False
for thread in threads: thread.join()
assert len(set(ids)) == len(ids)
last = mail.enqueue_sync("parent").id
print(last == len(ids) + 6)
"""


FORK_IN_AN_IMPORT = """
begun, forked, one = threading.Event(), threading.Event(), threading.Lock()
class Slow:  # finds nothing, and takes its time over it
    def find_spec(self, name, path, target=None):
        if name == SLOW and one.acquire(blocking=False):
            begun.set()
            forked.wait(0.3)
sys.meta_path.insert(0, Slow())
first = threading.Thread(target=mail.enqueue_sync, args=["parent"])
first.start()
begun.wait()
if not (child := os.fork()):
    signal.alarm(60)  # it may wait for an import that no thread of it ends
    for _ in range(3):  # else its next thread may be taken for the one that imports
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    mail.enqueue_sync("child")
    os._exit(0)
forked.set()
first.join()
assert os.waitpid(child, 0)[1] == 0
print(mail.enqueue_sync("parent").id)
"""


def test_a_fork_in_the_middle_of_another_thread_s_first_call_leaves_the_child_able_to_call(
    store_url: str, tmp_path: Path
) -> None:
    """The call imports the store: the child would keep half a module for good."""
    kind = "sqlite" if store_url.startswith("sqlite") else "postgres"
    program = f"SLOW = 'outlast.store.{kind}.store'\n{FORK_IN_AN_IMPORT}"
    assert run(program, store_url, tmp_path) == "3\n"


FIRST_IMPORTS = """
from outlast.base import forks
seen = []
class Look:
    def find_spec(self, name, path, target=None):
        if not forks.importing._is_owned():
            seen.append(name)
sys.meta_path.insert(0, Look())
CALL
print(seen)
"""
EMBEDDED = """
async def work():
    async with app.worker():
        await (await mail.enqueue("first")).result(timeout=60)
asyncio.run(work())
"""


@pytest.mark.parametrize(
    "call", ['mail.enqueue_sync("first")', EMBEDDED], ids=["enqueue", "worker"]
)
def test_all_that_a_first_call_imports_is_whole_before_a_fork(
    store_url: str, tmp_path: Path, call: str
) -> None:
    url = store_url.replace("127.0.0.1", "localhost")  # a name is looked up on a thread
    assert run(FIRST_IMPORTS.replace("CALL", call), url, tmp_path) == "[]\n"


AT_EXIT = """
mail.enqueue_sync("first")
LATE.append(mail)
"""
AT_EXIT_BEFORE_THE_FIRST_USE = """
@atexit.register
def early():  # after the end of what the first use begins
    print("early", mail.enqueue_sync("early").id > 0, flush=True)
mail.enqueue_sync("first")
"""
AT_EXIT_OF_A_LOOP = """
async def main():
    await mail.enqueue("first")
asyncio.run(main())
LATE.append(mail)
"""


no_thread_at_exit = pytest.mark.skipif(
    sys.version_info[:2] == (3, 12) and sys.version_info < (3, 12, 2),
    reason="Python 3.12.0 and 3.12.1 start no thread for handlers of atexit",
)


@no_thread_at_exit
def test_what_is_enqueued_at_the_very_end_is_stored_and_the_program_ends(
    store_url: str, tmp_path: Path
) -> None:
    for program in (AT_EXIT, AT_EXIT_OF_A_LOOP):
        assert run(program, store_url, tmp_path) == "late True\n"


@no_thread_at_exit
def test_what_a_handler_enqueues_that_is_older_than_the_first_use_is_stored(
    sqlite_url: str, tmp_path: Path
) -> None:
    assert run(AT_EXIT_BEFORE_THE_FIRST_USE, sqlite_url, tmp_path) == "early True\n"


CLOSED_IN_USE = """
def held():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(sessions())
async def main():
    await mail.enqueue("first")
    first = held()
    for n in range(6):  # as "async with app:" in each request of a server
        calls = [asyncio.create_task(mail.enqueue("a")) for _ in range(6)]
        for _ in range(n):
            await asyncio.sleep(0)
        await app.close()
        assert len({(await call).id for call in calls}) == 6
    await app.close()
    last = held()
    assert all(now <= before for before, now in zip(first, last)), (first, last)
asyncio.run(main())
print("done")
"""


def test_calls_that_outlive_a_close_leave_no_session_behind(
    bare_pg_url: str, tmp_path: Path
) -> None:
    assert run(CLOSED_IN_USE, bare_pg_url, tmp_path) == "done\n"


SIGNALS = """
ids = []
begun = 0
def note(number, frame):
    global begun
    begun += 1
    if begun <= 20:
        ids.append(mail.enqueue_sync("handler").id)
signal.signal(signal.SIGALRM, note)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.002)
made = [mail.enqueue_sync("main").id for _ in range(60)]
signal.setitimer(signal.ITIMER_REAL, 0)
assert len({*made, *ids}) == 60 + len(ids) and ids
print("done")
"""


FIRST_LOOP = """
signal.alarm(20)
with asyncio.events._lock:  # as a handler finds it that comes while asyncio makes its policy
    print(mail.enqueue_sync("handler").id)
"""


FINALIZERS = """
class Cyclic:
    def __init__(self):
        self.me = self
    def __del__(self):
        try:
            mail.enqueue_sync("finalizer")
        except outlast.SyncInLoop:  # in the thread of a loop: it would wait for itself
            refused.append(1)
refused = []
gc.set_threshold(50, 2, 2)
for n in range(200):
    Cyclic()
    mail.enqueue_sync("main")
del Cyclic.__del__
print(mail.enqueue_sync("last").id > 200)
"""


AT_SHUTDOWN = """
class Late:
    def __del__(self):
        try:
            mail.enqueue_sync("late")
        except Exception as error:
            print(sys.is_finalizing(), type(error).__name__, flush=True)
mail.enqueue_sync("first")
kept = Late()
sys.modules["kept"] = kept  # it is freed when threads run no more
"""


MANY_RUNS = """
def held():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(sessions())
async def work(n):
    if n % 5:
        await mail.enqueue("a")
    else:  # broken off somewhere
        try:
            await asyncio.wait_for(mail.enqueue("a"), 0.0005 * (n % 40))
        except TimeoutError:
            pass
asyncio.run(work(1))
first = held()
for n in range(RUNS):
    asyncio.run(work(n))
last = held()
assert all(now <= before + 1 for before, now in zip(first, last)), (first, last)
print("done")
"""


# asyncpg leaves this future alone where a connection attempt is cancelled before TLS is negotiated.
BROKEN_OFF = """\
Future exception was never retrieved
future: <Future finished exception=ConnectionError('unexpected connection_lost() call')>
ConnectionError: unexpected connection_lost() call
"""


def test_event_loops_one_after_the_other_leave_nothing_behind(
    store_url: str, tmp_path: Path
) -> None:
    runs = 300 if store_url.startswith("sqlite") else 20
    assert run(f"RUNS = {runs}\n{MANY_RUNS}", store_url, tmp_path, but=BROKEN_OFF) == "done\n"


CARELESS_LOOPS = """
import warnings; warnings.simplefilter("ignore")
for n in range(15):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(mail.enqueue("a"))
    loop.close()  # without the end that asyncio.run gives its generators
gc.collect()
assert len(sessions()) < 10 and threading.active_count() < 10, (sessions(), threading.enumerate())
print("done")
"""


LOOPS_AT_ONCE = """
sys.setswitchinterval(1e-5)
failed = []
def run(n):
    try:
        for _ in range(3):
            asyncio.run(enqueue())
            if n == 1:
                mail.enqueue_sync("plain")
    except BaseException as error:
        failed.append(error)
async def enqueue():
    await mail.enqueue("a")
    await asyncio.gather(*(mail.enqueue("b") for _ in range(3)))
threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
assert not failed, failed
assert not any(thread.is_alive() for thread in threads)
print(mail.enqueue_sync("last").id == 6 * 3 * 4 + 3 + 1)
"""


@pytest.mark.parametrize(
    ("program", "says"),
    [
        pytest.param(PREFORK, "22", id="children that end leave the parent its connections"),
        pytest.param(RESTING_LOOP, "2", id="what a child frees stays open in the parent"),
        pytest.param(OUT_OF_A_LOOP, "5", id="a process forked out of an event loop has its own"),
        pytest.param(
            BUSY_PARENT,
            "True",
            id="forks in the middle of calls of other threads lose and double nothing",
            marks=pytest.mark.slow,
        ),
        pytest.param(SIGNALS, "done", id="a signal handler enqueues in the middle of an enqueue"),
        pytest.param(
            FIRST_LOOP,
            "1",
            id="a signal handler enqueues while asyncio makes its first event loop",
        ),
        pytest.param(FINALIZERS, "True", id="finalizers enqueue wherever garbage is collected"),
        pytest.param(AT_SHUTDOWN, "True UsageError", id="a finalizer at the shutdown is refused"),
        pytest.param(
            CARELESS_LOOPS,
            "done",
            id="loops that are just closed leave no connections behind",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            LOOPS_AT_ONCE,
            "True",
            id="threads with event loops of their own do not disturb each other",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_program_enqueues_and_ends(
    program: str, says: str, store_url: str, tmp_path: Path
) -> None:
    assert run(program, store_url, tmp_path) == f"{says}\n"

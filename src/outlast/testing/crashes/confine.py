"""Let the kernel confine this process and all that it starts, and then run a module in it.

Replacing Python's functions protects nothing: a copy may have been bound before, and C code calls
none of them. So a crash test starts this file alone in a fresh process (``process.py``), which
imports the application, and starts a thread, only once nothing real can be changed or reached.

- **Landlock**: no file is written, made, renamed or removed outside one folder, no process outside
  gets a signal, and TCP connects to named ports only.
- **A filter of system calls (seccomp)** allows no call that changes metadata, on which Landlock
  has no say, no socket but those of TCP, and no io_uring, which would bypass a filter. It judges
  each call that could name something real by an argument.
- No capability is left. The open descriptors are those of our pipe and the null device.

An act for which this kernel has no rule is refused altogether. The process may read what
its user may read.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import site
import struct
import sys

ANSWER = "answer.json"  # in the folder: a report, or an error
FREE = """
read=0 write=1 close=3 stat=4 fstat=5 lstat=6 poll=7 lseek=8 mmap=9 mprotect=10 munmap=11 brk=12
rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 pread64=17 pwrite64=18 readv=19 writev=20
access=21 pipe=22 select=23 sched_yield=24 mremap=25 msync=26 mincore=27 madvise=28 dup=32 dup2=33
pause=34 nanosleep=35 getitimer=36 alarm=37 setitimer=38 getpid=39 sendfile=40 connect=42
recvfrom=45 recvmsg=47 shutdown=48 getsockname=51 getpeername=52 getsockopt=55 fork=57 vfork=58
execve=59 exit=60 wait4=61 uname=63 flock=73 fsync=74 fdatasync=75 ftruncate=77 getdents=78
getcwd=79 chdir=80 fchdir=81 rename=82 mkdir=83 rmdir=84 creat=85 link=86 unlink=87 symlink=88
readlink=89 umask=95 gettimeofday=96 getrlimit=97 getrusage=98 sysinfo=99 times=100 getuid=102
getgid=104 geteuid=107 getegid=108 setpgid=109 getppid=110 getpgrp=111 setsid=112 getgroups=115
getresuid=118 getresgid=120 getpgid=121 getsid=124 capget=125 rt_sigpending=127 rt_sigtimedwait=128
rt_sigsuspend=130 sigaltstack=131 mknod=133 statfs=137 fstatfs=138 getpriority=140
sched_getparam=143 sched_getscheduler=145 sched_get_priority_max=146 sched_get_priority_min=147
sched_rr_get_interval=148 mlock=149 munlock=150 mlockall=151 munlockall=152 prctl=157 arch_prctl=158
setrlimit=160 sync=162 gettid=186 readahead=187 getxattr=191 lgetxattr=192 fgetxattr=193
listxattr=194 llistxattr=195 flistxattr=196 time=201 futex=202 sched_getaffinity=204
epoll_create=213 getdents64=217 set_tid_address=218 restart_syscall=219 fadvise64=221
timer_create=222 timer_settime=223 timer_gettime=224 timer_getoverrun=225 timer_delete=226
clock_gettime=228 clock_getres=229 clock_nanosleep=230 exit_group=231 epoll_wait=232 epoll_ctl=233
mbind=237 set_mempolicy=238 get_mempolicy=239 waitid=247 inotify_init=253 inotify_add_watch=254
inotify_rm_watch=255 mkdirat=258 mknodat=259 newfstatat=262 unlinkat=263 renameat=264 linkat=265
symlinkat=266 readlinkat=267 faccessat=269 pselect6=270 ppoll=271 set_robust_list=273
get_robust_list=274 splice=275 tee=276 sync_file_range=277 vmsplice=278 epoll_pwait=281 signalfd=282
timerfd_create=283 eventfd=284 fallocate=285 timerfd_settime=286 timerfd_gettime=287 signalfd4=289
eventfd2=290 epoll_create1=291 dup3=292 pipe2=293 inotify_init1=294 preadv=295 pwritev=296
recvmmsg=299 syncfs=306 getcpu=309 renameat2=316 getrandom=318 memfd_create=319 execveat=322
membarrier=324 mlock2=325 copy_file_range=326 preadv2=327 pwritev2=328 pkey_mprotect=329
pkey_alloc=330 pkey_free=331 statx=332 rseq=334 pidfd_open=434 close_range=436 faccessat2=439
epoll_pwait2=441 landlock_create_ruleset=444 landlock_add_rule=445 landlock_restrict_self=446
futex_waitv=449
"""
"""System calls of x86-64 that change nothing real, or only what Landlock judges by its path."""
_SIGNALS = (62, 200, 234)  # kill, tkill, tgkill
_TRUNCATE, _SOCKET = 76, 41
_NEWER = (435, 437)  # clone3, openat2: libraries then use clone and openat
_OPENS = (0, 1, 2, 0x201, 0x202)  # of O_ACCMODE and O_TRUNC: none truncates what it only reads
_SOCKET_FLAGS = 0x80800  # SOCK_CLOEXEC, SOCK_NONBLOCK
_FASTOPEN = 0x20000000  # MSG_FASTOPEN: it connects
_NAMESPACES = 0x7E020000
JUDGED = {  # number -> (argument, mask, values) of each argument that has to be one of these
    2: ((1, 0x203, _OPENS),),  # open
    257: ((2, 0x203, _OPENS),),  # openat
    16: (  # ioctl: of terminals and pipes; not of a file's flags
        (1, -1, (0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A)),
    ),
    72: ((1, -1, (*range(8), 36, 37, 38, *range(1030, 1035))),),  # fcntl: not F_SETOWN
    _SOCKET: ((0, -1, (2, 10)), (1, ~_SOCKET_FLAGS, (1,)), (2, -1, (0, 6))),  # TCP, and not MPTCP
    53: ((0, -1, (1,)), (1, ~_SOCKET_FLAGS, (1,))),  # socketpair: one of datagrams reaches others
    44: ((3, _FASTOPEN, (0,)),),  # sendto
    46: ((2, _FASTOPEN, (0,)),),  # sendmsg
    307: ((3, _FASTOPEN, (0,)),),  # sendmmsg
    54: ((1, -1, (1, 6)), (2, -1, (*range(1, 14), 18, 20, 21, 66, 67))),  # setsockopt
    56: ((0, _NAMESPACES, (0,)),),  # clone
    203: ((0, -1, (0,)),),  # sched_setaffinity: of this thread
    302: ((0, -1, (0,)),),  # prlimit64: of this process
}
_ARCHITECTURE = 0xC000003E  # x86-64
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_KILL, _REFUSE, _UNKNOWN, _ALLOW = 0x80000000, 0x00050001, 0x00050026, 0x7FFF0000  # EPERM, ENOSYS
_RIGHTS = {1: 0x1FF2, 2: 0x3FF2, 3: 0x7FF2, 4: 0x7FF2, 6: 0x7FF2}
"""Landlock's version -> its rights to change files: REFER since 2, TRUNCATE since 3; rules for TCP
since 4, for signals since 6."""
TCP_SINCE, SIGNALS_SINCE, TRUNCATE_SINCE = 4, 6, 3
_TO_NULL = 0x4002  # to write and truncate it
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


class CannotConfineError(Exception):
    """This kernel cannot hold the process; the message says what it lacks."""


def confine(folder: str, ports: list[int]) -> None:
    """Hold this process, which has one thread, and all that it will start, for good; TCP connects
    to ``ports`` only. After CannotConfineError it may be held in part."""
    if sys.platform != "linux" or os.uname().machine != "x86_64" or sys.maxsize < 2**32:
        raise CannotConfineError("the sandbox needs Linux on x86-64")
    if len(os.listdir("/proc/self/task")) > 1:
        raise CannotConfineError("another thread runs already, which the sandbox would not hold")
    _prctl(38, 1)  # PR_SET_NO_NEW_PRIVS
    _drop_capabilities()
    version = _restrict_files(folder, ports)
    _filter(make_filter(version))


def _drop_capabilities() -> None:
    for number in range(64):
        if _LIBC.prctl(24, ctypes.c_long(number), 0, 0, 0) < 0:  # PR_CAPBSET_DROP
            break  # there is no such one, or they cannot be had again anyway
    head, none = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _call("no capability can be dropped", 126, head, none)  # capset


def _restrict_files(folder: str, ports: list[int]) -> int:
    """Restrict what files may be changed; return the version of Landlock's rules that holds."""
    for version in sorted(_RIGHTS, reverse=True):
        rights = _RIGHTS[version]
        size = 8 * (1 + (version >= TCP_SINCE) + (version >= SIGNALS_SINCE))
        attributes = struct.pack("QQQ", rights, 3, 3)[:size]  # of files, TCP, and signals
        rules = _LIBC.syscall(444, attributes, ctypes.c_size_t(size), 0)
        if rules >= 0:
            break
    else:
        reason = os.strerror(ctypes.get_errno())
        raise CannotConfineError(
            f"this kernel has no Landlock (Linux 5.13), or forbids it: {reason}"
        )
    if ports and version < TCP_SINCE:
        raise CannotConfineError("this kernel has no rules for ports of TCP (Linux 6.7)")
    for path, allowed in ((folder, rights), ("/dev/null", _TO_NULL & rights)):
        opened = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", allowed, opened)
        _call(f"no rule for {path}", 445, rules, 1, rule, 0)
        os.close(opened)
    for port in ports:
        _call(f"no rule for port {port}", 445, rules, 2, struct.pack("QQ", 2, port), 0)
    _call("Landlock does not hold", 446, rules, 0)
    os.close(rules)
    return version


def make_filter(version: int) -> bytes:
    """Return the program that judges system calls, where Landlock has rules of this version."""
    free = [int(each.partition("=")[2]) for each in FREE.split()]
    free += _SIGNALS if version >= SIGNALS_SINCE else ()
    free += (_TRUNCATE,) if version >= TRUNCATE_SINCE else ()
    steps = [_step(_LOAD, 4), _step(_EQUAL, _ARCHITECTURE, 1), _step(_RETURN, _KILL)]
    steps.append(_step(_LOAD, 0))  # its number: of x32 none is in the list
    for number in free:
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ALLOW)]
    for number, arguments in JUDGED.items():
        if number == _SOCKET and version < TCP_SINCE:
            continue
        judging: list[bytes] = []
        for argument, mask, values in arguments:
            judging += [_step(_LOAD, 16 + 8 * argument), _step(_AND, mask & 0xFFFFFFFF)]
            judging += [_step(_EQUAL, v, len(values) - at) for at, v in enumerate(values)]
            judging.append(_step(_RETURN, _REFUSE))
        judging.append(_step(_RETURN, _ALLOW))
        steps += [_step(_EQUAL, number, 0, len(judging)), *judging]
    for number in _NEWER:
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _UNKNOWN)]
    return b"".join([*steps, _step(_RETURN, _REFUSE)])


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Return one step: ``yes`` and ``no`` are how many of the next ones are passed over."""
    return struct.pack("HBBI", code, yes, no, value)


def _filter(program: bytes) -> None:
    held = ctypes.create_string_buffer(program)
    count = len(program) // len(_step(0, 0))
    _prctl(22, 2, struct.pack("HxxxxxxQ", count, ctypes.addressof(held)))  # PR_SET_SECCOMP


def _prctl(number: int, *arguments: int | bytes) -> None:
    given = [*arguments, *[0] * (4 - len(arguments))]
    if _LIBC.prctl(number, *map(_long, given)) < 0:
        raise CannotConfineError(f"prctl({number}): {os.strerror(ctypes.get_errno())}")


def _call(what: str, *arguments: int | bytes) -> None:
    if _LIBC.syscall(*map(_long, arguments)) < 0:
        raise CannotConfineError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _long(value: int | bytes) -> ctypes.c_long | bytes:
    return ctypes.c_long(value) if isinstance(value, int) else value


def main() -> None:
    """Read from stdin what to run, and how it is held; run it. ``ANSWER`` says why not."""
    given = json.load(sys.stdin)
    try:
        if sys.platform == "linux":
            _prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
        if given["sandbox"]:
            confine(given["folder"], given["allow_connect"])
    except CannotConfineError as error:
        with open(os.path.join(given["folder"], ANSWER), "w") as file:
            json.dump({"error": f"{error.args[0]}: --no-sandbox runs it without one"}, file)
        return
    sys.path[:] = given["path"]
    site.main()  # what an environment does at Python's start, which was started by -S
    importlib.import_module(given["module"]).main(given)


if __name__ == "__main__":
    main()

"""What this operating system offers; the only module that asks which one it is.

On Linux the kernel does what this module is asked for. On macOS the same is done by other means, with the differences
that the functions tell. Windows is not supported: use WSL there.
"""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable

_PROC = pathlib.Path("/proc")
_CGROUPS = pathlib.Path("/sys/fs/cgroup")  # where Linux tells a container its limits
_SHARED_MEMORY = pathlib.Path("/dev/shm")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ORPHAN_S = 0.5  # between two looks whether the parent lives, where the kernel does not tell
_CHILD_S = 0.05  # between two looks whether a child has ended, where waiting would reap it
_LOOK_S = 0.1  # longer than `is_locked` holds a lock, where it has to try


def is_linux() -> bool:
    """Whether this is Linux."""
    return sys.platform == "linux"


def available_cores() -> int:
    """Returns the number of cores that this process may use, or where this can't be asked, those of the machine."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def give_way() -> None:
    """Lets other threads of the machine run first."""
    os.sched_yield() if sys.platform == "linux" else time.sleep(0)


def free_memory() -> int:
    """Returns the free memory in bytes, as limited by a container; all memory of the machine where nothing tells it."""
    free = _free_in_container()
    with contextlib.suppress(OSError):
        for line in (_PROC / "meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return min(free, int(line.split()[1]) * 1024)
    return min(free, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _free_in_container() -> int:
    """Returns the memory that a container's limit leaves, in bytes; 2**62 if there is no limit."""
    free = 2**62
    for limit, used, of_all in (  # of the second and the first version of Linux's control groups
        ("memory.max", "memory.current", ""),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_"),
    ):
        with contextlib.suppress(OSError, ValueError):  # there is no such file, or the limit is "max"
            left = int((_CGROUPS / limit).read_text()) - int((_CGROUPS / used).read_text())
            for line in (_CGROUPS / limit).with_name("memory.stat").read_text().splitlines():
                name, count = line.split()
                if name in (f"{of_all}active_file", f"{of_all}inactive_file"):  # caches, which Linux frees when needed
                    left += int(count)
            free = min(free, left)
    return free


def shared_folder() -> pathlib.Path:
    """Returns a folder whose files are in shared memory, or else the folder for temporary files."""
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else pathlib.Path(tempfile.gettempdir())


def enlarge_pipe(writer: int, size: int) -> None:
    """Gives a pipe room for `size` bytes, if it can be given; macOS enlarges pipes itself, up to 64 KiB."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a user's pipes together have a limit
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, size)


def lock(descriptor: int) -> None:
    """Takes the exclusive lock of an open file, until it is closed or the process ends.

    Raises:
        BlockingIOError: another holds it.
        OSError: the disk has no locks.
    """
    end = time.monotonic() + _LOOK_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Where `is_locked` has to try, it may hold the lock for a moment.
            if _locks() is not None or time.monotonic() > end:
                raise
        time.sleep(_LOOK_S / 10)


def is_locked(path: pathlib.Path, holder: int | None) -> bool:
    """Whether a process of this host holds the exclusive lock of a file.

    Args:
        path: the file.
        holder: the process that has said it holds the lock, if one has.

    Raises:
        OSError: there is no such file, or it can't be read.
    """
    file = path.stat()
    if (locks := _locks()) is not None:  # trying to lock it could refuse a run that starts in that moment
        disk = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}"
        for line in locks.splitlines():
            # 1: FLOCK ADVISORY WRITE 8218 fe:00:2146364 0 EOF. Some file systems have another disk number there.
            match = re.search(rf" FLOCK .* (-?\d+) (\S+):{file.st_ino} ", line)
            if match and (match[2] == disk or match[1] == str(holder)):
                return True
        return False
    with path.open("rb") as tried:
        try:
            fcntl.flock(tried, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _locks() -> str | None:
    """Returns the system's list of file locks, or None if it has none."""
    with contextlib.suppress(OSError):
        return (_PROC / "locks").read_text(encoding="ascii")
    return None


def private_signals() -> tuple[int, int, int, int]:
    """Returns four signals that nothing else uses, and that end a process which has no handler for them.

    Linux's real-time signals are queued. Elsewhere these are signals of timers and limits that nobody sets, and two
    that arrive together may be one.
    """
    if sys.platform == "linux":
        first = int(signal.SIGRTMIN)
        return first + 1, first + 2, first + 3, first + 4
    return int(signal.SIGVTALRM), int(signal.SIGPROF), int(signal.SIGXCPU), int(signal.SIGXFSZ)


def signal_name(number: int) -> str:
    """Returns a signal's name, or `signal 38` for one that has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_at_parents_end(parent: int, number: int) -> bool:
    """Has a signal sent to this process when its parent has ended; returns whether the parent is alive.

    Linux's kernel sends it. Elsewhere a thread does, half a second later at most.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
        return os.getppid() == parent

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_ORPHAN_S)
        os.kill(os.getpid(), number)

    if alive := os.getppid() == parent:
        threading.Thread(target=watch, name="parent", daemon=True).start()
    return alive


def adopt_orphans() -> None:
    """Makes this process adopt all its descendants whose parent ends. Only Linux can; elsewhere nothing adopts them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Returns the children of this process, including zombies."""
    pairs: list[tuple[int, int]] = []
    if os.access(_PROC / "self/stat", os.R_OK):
        for entry in _PROC.iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it has just ended
                    parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                    pairs.append((int(entry.name), int(parent)))
    else:
        with subprocess.Popen(["ps", "-axo", "pid=,ppid="], stdout=subprocess.PIPE, text=True) as ps:
            assert ps.stdout is not None
            pairs = [(int(pid), int(parent)) for pid, parent in map(str.split, ps.stdout) if int(pid) != ps.pid]
    return [pid for pid, parent in pairs if parent == os.getpid()]


def wait_for_child(child: int, signals: Iterable[int]) -> int:
    """Waits for a child process and returns `os.waitpid`'s status.

    The signals are delivered while it waits, but not after the child was reaped: its number may be another process's
    then, which their handlers must not reach. They stay blocked.
    """
    signals = list(signals)
    if sys.platform == "linux":  # macOS has `waitid` from Python 3.13 on
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        return os.waitpid(child, 0)[1]
    while True:
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        time.sleep(_CHILD_S)

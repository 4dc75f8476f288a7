"""How much memory this machine, or its container, has left."""

import contextlib
import pathlib

_CGROUPS = pathlib.Path("/sys/fs/cgroup")  # where Linux tells a container its limits
_MEMORY = pathlib.Path("/proc/meminfo")


def free_memory() -> int:
    """Returns the free memory in bytes, as limited by a container; 2**62 where the system doesn't tell."""
    free = _free_in_container()
    with contextlib.suppress(OSError):  # only Linux has this file
        for line in _MEMORY.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                free = min(free, int(line.split()[1]) * 1024)
    return free


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

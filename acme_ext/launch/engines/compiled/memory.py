"""Whether the arrays of a compiled run fit into memory."""

import contextlib
import pathlib
from typing import Any

import jax
import numpy as np

from acme_ext.errors import UsageError
from acme_ext.launch.engines.compiled.loops import Loop
from acme_ext.launch.engines.compiled.state import RunState
from acme_ext.types import Tree

_CGROUPS = pathlib.Path("/sys/fs/cgroup")  # where Linux tells a container its limits


def check_memory(world: RunState, loop: Loop, seeds: int) -> None:
    """Raises UsageError if a run's arrays don't fit into the device's memory."""
    held = loop.sharding.nbytes(world, seeds) if loop.sharding else _nbytes(world) * seeds
    if not world.replay:
        replay: Any = loop.agent.replay
        held += 3 * replay.length * max(replay.batch_size, len(world.place.lengths)) * seeds * _row_nbytes(world)
    free = _free_memory(len(loop.sharding.devices) if loop.sharding else 1)
    if held > free:
        large = "replay.max_size, " if world.replay else "replay.length, "
        raise UsageError(
            f"the run needs about {held / 1e9:.1f} GB of the device's memory, and {free / 1e9:.1f} GB are free: choose "
            f"a smaller {large}--num-envs or --seeds."
        )


def _nbytes(tree: Tree) -> int:
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _row_nbytes(world: RunState) -> int:
    return _nbytes(world.place.timestep) // len(world.place.lengths)


def _free_memory(devices: int) -> int:
    """Returns the free memory of this number of devices together, in bytes.

    Devices that are a machine's processors share its memory.
    """
    statistics = jax.local_devices()[0].memory_stats()
    if statistics and "bytes_limit" in statistics:
        return devices * (statistics["bytes_limit"] - statistics["bytes_in_use"])
    free = _free_in_container()
    if (memory := pathlib.Path("/proc/meminfo")).is_file():  # on Linux
        for line in memory.read_text(encoding="utf-8").splitlines():
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

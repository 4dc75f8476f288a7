"""Whether the arrays of a compiled run fit into memory."""

from typing import Any

import jax
import numpy as np

from acme_ext.errors import UsageError
from acme_ext.launch.engines.compiled.loops import Loop
from acme_ext.launch.engines.compiled.state import RunState
from acme_ext.types import Tree
from acme_ext.utils.system import free_memory


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
    return free_memory()

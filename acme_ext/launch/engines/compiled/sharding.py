"""A compiled run on several devices: which arrays are split over them, and along which axis.

Environments, their unfinished items, the items of a replay and the learner's batches are split over the devices. Each
device has a copy of the learner's state and of the priorities. XLA adds the communication, so that the results are the
same as on one device.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from acme_ext.errors import UsageError
from acme_ext.launch.engines.compiled.state import RunState
from acme_ext.replay.unrolls import Unfinished
from acme_ext.types import Tree

_AXIS = "devices"


class Sharding:
    """How the arrays of a run are split over devices.

    Args:
        devices: the devices, at least two.
        num_envs: the number of environments.
        batch_size: the number of items in the learner's batch.

    Raises:
        UsageError: `num_envs` or `batch_size` is not divisible by the number of devices.
    """

    def __init__(self, devices: Sequence[jax.Device], num_envs: int, batch_size: int):
        for name, size in (("num_envs", num_envs), ("batch_size", batch_size)):
            if size % len(devices):
                raise UsageError(f"{name} is {size}: it must be a multiple of the number of devices, {len(devices)}.")
        self.devices = list(devices)
        self._mesh = Mesh(self.devices, (_AXIS,))

    def of_state(self, state: RunState, *, seeds: bool = False) -> RunState:
        """Returns the sharding of each array of a run's state, or of the states of several seeds `[S]`.

        The leaves may be `jax.ShapeDtypeStruct`s: only their shapes are used.
        """
        lead = int(seeds)

        def along(tree: Tree, axis: int) -> Tree:
            return jax.tree.map(lambda leaf: self._along(leaf, axis + lead), tree)

        def everywhere(tree: Tree) -> Tree:
            return jax.tree.map(lambda _: NamedSharding(self._mesh, PartitionSpec()), tree)

        whole, place, replay = everywhere(state), state.place, state.replay
        split = {name: along(getattr(place, name), 0) for name in place._fields if name not in ("ticks", "steps")}
        whole = whole._replace(place=whole.place._replace(**split))
        if not replay:
            return whole
        pending = along(replay.pending, 1)
        if isinstance(replay.pending, Unfinished):
            clocks = {name: along(getattr(replay.pending, name), 0) for name in ("start", "origin")}
            pending = pending._replace(**clocks)
        return whole._replace(replay=whole.replay._replace(items=along(replay.items, 0), pending=pending))

    def held(self, state: RunState) -> RunState:
        """Constrains a run's arrays to the shardings of `of_state`, within a compiled program."""
        return jax.tree.map(_constrained, state, self.of_state(state))

    def batch(self, data: Tree, axis: int) -> Tree:
        """Constrains a batch's arrays to be split along an axis, within a compiled program."""
        return jax.tree.map(lambda leaf: _constrained(leaf, self._along(leaf, axis)), data)

    def nbytes(self, state: RunState, seeds: int) -> int:
        """Returns the size of the states of `seeds` seeds on all devices together, in bytes."""
        pairs = zip(jax.tree.leaves(state), jax.tree.leaves(self.of_state(state)), strict=True)
        of_one = sum(math.prod(sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf, sharding in pairs)
        return of_one * len(self.devices) * seeds

    def _along(self, leaf: Any, axis: int) -> NamedSharding:
        """Returns the sharding that splits an axis.

        An array whose axis isn't a multiple of the number of devices is copied to each: a replay may have any size.
        """
        if leaf.ndim <= axis or leaf.shape[axis] % len(self.devices):
            return NamedSharding(self._mesh, PartitionSpec())
        return NamedSharding(self._mesh, PartitionSpec(*[None] * axis, _AXIS))


def _constrained(leaf: Any, sharding: NamedSharding) -> Any:
    # JAX 0.5 omits an axis from the sharding of random keys. XLA chooses the right one without a constraint.
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return jax.lax.with_sharding_constraint(leaf, sharding)

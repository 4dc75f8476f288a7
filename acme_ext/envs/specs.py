"""Specs in single precision, and the buffers that hold what they describe."""

from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import numpy as np
import tree
from dm_env import specs

from acme_ext.errors import UsageError
from acme_ext.types import Tree

REWARD = specs.Array((), np.float32, name="reward")
DISCOUNT = specs.BoundedArray((), np.float32, minimum=0.0, maximum=1.0, name="discount")

_SINGLE = {np.dtype(a): np.dtype(b) for a, b in (("f8", "f4"), ("i8", "i4"), ("u8", "u4"))}


def single_dtype(dtype: Any) -> np.dtype:
    """The single-precision counterpart of a dtype; types of 32 bits and less stay as they are."""
    dtype = np.dtype(dtype)
    return _SINGLE.get(dtype) or dtype


def single_spec(spec: Any) -> specs.Array:
    """The single-precision counterpart of one array's spec; UsageError for anything else."""
    if not isinstance(spec, specs.Array) or isinstance(spec, specs.StringArray):
        raise UsageError(f"an environment's specs must be dm_env specs of numbers, not {spec!r}.")
    dtype = single_dtype(spec.dtype)
    if isinstance(spec, specs.DiscreteArray):
        return specs.DiscreteArray(spec.num_values, dtype.type, spec.name)
    if isinstance(spec, specs.BoundedArray):
        low, high = _cast_bound(spec.minimum, dtype), _cast_bound(spec.maximum, dtype)
        return specs.BoundedArray(spec.shape, dtype, low, high, spec.name)
    return specs.Array(spec.shape, dtype, spec.name)


def single_specs(spec: Tree) -> Tree:
    """The single-precision counterpart of a nest of specs."""
    return tree.map_structure(single_spec, spec)


def _cast_bound(bound: Any, dtype: np.dtype) -> np.ndarray:
    """A bound in another dtype: integers stop at its limits instead of wrapping round, floats become infinite."""
    bound = np.asarray(bound)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return np.clip(bound, limits.min, limits.max).astype(dtype)
    with np.errstate(over="ignore"):
        return bound.astype(dtype)


def action_spec(environment: dm_env.Environment) -> tuple[specs.Array, np.dtype]:
    """An environment's action spec in single precision, and the dtype it states itself; UsageError for a nest."""
    spec = environment.action_spec()
    if not isinstance(spec, specs.Array):
        raise UsageError(f"an environment's action must be a single array, not a {type(spec).__name__} of them.")
    return single_spec(spec), spec.dtype


def scalar_reward(environment: dm_env.Environment) -> None:
    """Raises UsageError unless an environment's reward and discount are one number each."""
    for what, spec in (("reward", environment.reward_spec()), ("discount", environment.discount_spec())):
        if not isinstance(spec, specs.Array) or spec.shape != ():
            raise UsageError(f"an environment's {what} must be one number, its spec says {spec!r}.")


def row_writer(buffers: Tree) -> Callable[[int, Tree], None]:
    """Returns `write(row, nest)`, which copies a nest into one row of the nest of `buffers`.

    The nest is walked once, here: what a step of a single-array observation pays is one assignment.
    """
    if isinstance(buffers, np.ndarray):
        return buffers.__setitem__
    items = buffers.items() if isinstance(buffers, Mapping) else enumerate(buffers)
    writers = [(key, row_writer(value)) for key, value in items]

    def write(row: int, value: Any) -> None:
        for key, writer in writers:
            writer(row, value[key])

    return write


def check_delivery(spec: Tree, observation: Tree) -> None:
    """Raises UsageError if an observation's structure or shapes are not its spec's: assignments would broadcast."""
    leaves = tree.flatten_with_path(spec)
    try:
        values = tree.flatten_up_to(spec, observation, check_types=False)
    except (TypeError, ValueError):
        values = []
    if len(values) != len(leaves) or any(isinstance(value, Mapping) for value in values):
        raise UsageError("an environment delivers an observation of another structure than its spec's.")
    for (path, leaf), value in zip(leaves, values, strict=True):
        if np.shape(value) != leaf.shape:
            name = "an observation" if not path else "observation " + "/".join(map(str, path))
            raise UsageError(
                f"an environment delivers {name} of shape {np.shape(value)}, but its spec says {leaf.shape}."
            )

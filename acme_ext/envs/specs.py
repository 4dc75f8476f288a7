"""Specs in single precision, buffers for the arrays that they describe, and checks against them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import tree
from dm_env import specs

from acme_ext.errors import RunError, UsageError
from acme_ext.specs import StackedFrames
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
        bounded = StackedFrames if isinstance(spec, StackedFrames) else specs.BoundedArray
        return bounded(spec.shape, dtype, low, high, spec.name)
    return specs.Array(spec.shape, dtype, spec.name)


def single_specs(spec: Tree) -> Tree:
    """The single-precision counterpart of a nest of specs."""
    return tree.map_structure(single_spec, spec)


def _cast_bound(bound: Any, dtype: np.dtype) -> np.ndarray:
    """Converts a bound to another dtype; integers are clipped to its limits, and large floats become infinite."""
    bound = np.asarray(bound)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return np.clip(bound, limits.min, limits.max).astype(dtype)
    with np.errstate(over="ignore"):
        return bound.astype(dtype)


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether a shape is that of an image with its channels first: the first size is less than the last."""
    return len(shape) == 3 and shape[0] < shape[2]


def one_hot(
    name: str, counts: Sequence[int], starts: Sequence[int] | None = None
) -> tuple[specs.Array, Callable[[np.ndarray], np.ndarray]]:
    """Returns the spec of N integers as one one-hot vector, and a function that converts integers `[..., N]` to it.

    Args:
        name: the field's name.
        counts: number of values of each integer.
        starts: lowest value of each integer; None for 0.
    """
    number = np.repeat(np.arange(len(counts)), counts)
    values = np.concatenate(
        [start + np.arange(n) for n, start in zip(counts, starts or [0] * len(counts), strict=True)]
    )

    def convert(numbers: np.ndarray) -> np.ndarray:
        hot = numbers[..., number] == values
        if np.count_nonzero(hot) != numbers.size:
            raise RunError(f"the observation {name!r} has numbers outside its space: {numbers.tolist()}.")
        return hot

    return specs.BoundedArray(values.shape, np.bool_, False, True, name), convert


def action_spec(environment: dm_env.Environment) -> tuple[specs.Array, np.dtype]:
    """Returns an environment's action spec in single precision, and its original dtype; UsageError for a nest."""
    spec = environment.action_spec()
    if not isinstance(spec, specs.Array):
        raise UsageError(f"an environment's action must be a single array, not a {type(spec).__name__} of them.")
    return single_spec(spec), spec.dtype


def check_dm_env(environment: Any) -> None:
    """Raises UsageError if what a factory made is not a dm_env."""
    if not isinstance(environment, dm_env.Environment):
        raise UsageError(
            f"an environment's factory must return a dm_env.Environment, not a {type(environment).__name__}; "
            "acme_ext.envs.gym.GymEnvironment makes one of a gymnasium environment."
        )


def scalar_reward(environment: dm_env.Environment) -> None:
    """Raises UsageError if an environment's reward or discount is not a single number."""
    for what, spec in (("reward", environment.reward_spec()), ("discount", environment.discount_spec())):
        if not isinstance(spec, specs.Array) or spec.shape != ():
            raise UsageError(f"an environment's {what} must be one number, its spec says {spec!r}.")


def float_buffers(spec: Tree, num_envs: int) -> tuple[np.ndarray, np.ndarray, Tree, list[np.ndarray]]:
    """Returns buffers [B, ...] for rewards, discounts and observations in single precision, and flat views of them.

    All float32 buffers share one block of memory, so that one check shows whether they are finite.
    """
    leaves = [REWARD, DISCOUNT, *tree.flatten(spec)]
    sizes = [num_envs * math.prod(leaf.shape) if leaf.dtype == np.float32 else 0 for leaf in leaves]
    block = np.zeros(sum(sizes), np.float32)
    arrays, flat, start = [], [block], 0
    for leaf, size in zip(leaves, sizes, strict=True):
        shape = (num_envs, *leaf.shape)
        arrays.append(block[start : start + size].reshape(shape) if size else np.zeros(shape, leaf.dtype))
        start += size
        if not size and leaf.dtype.kind == "f":
            flat.append(arrays[-1].reshape(-1))
    return arrays[0], arrays[1], tree.unflatten_as(spec, arrays[2:]), flat


def row_writer(buffers: Tree) -> Callable[[int, Tree], None]:
    """Returns `write(row, nest)`, which copies a nest into one row of the nest of `buffers`.

    `write` raises ValueError if a shape differs. The nest is traversed only once, here, so that `write` needs just one
    assignment for an observation of a single array.
    """
    if isinstance(buffers, np.ndarray):
        shape = buffers.shape[1:]

        def write_array(row: int, value: Any) -> None:
            try:
                fits = value.shape == shape
            except AttributeError:  # a Python number, or a list
                fits = np.shape(value) == shape
            if not fits:
                raise ValueError("of another shape")  # an assignment might broadcast it
            buffers[row] = value

        return write_array
    items = buffers.items() if isinstance(buffers, Mapping) else enumerate(buffers)
    writers = [(key, row_writer(value)) for key, value in items]

    def write(row: int, value: Any) -> None:
        for key, writer in writers:
            writer(row, value[key])

    return write


def check_observation(name: str, spec: Tree, observation: Tree) -> None:
    """Raises RunError, naming environment and field, if an observation's structure or shapes don't match its spec."""
    if not _has_fields(observation, spec):
        raise RunError(
            f"{name} delivered an observation of another structure than its spec's: {_outline(observation)}, and not "
            f"{_outline(spec)}."
        )
    values = tree.flatten_up_to(spec, observation, check_types=False)
    for (path, leaf), value in zip(tree.flatten_with_path(spec), values, strict=True):
        try:
            shape = np.shape(value)
        except ValueError:  # lists of unequal lengths
            shape = None
        kinds = "biuf" if leaf.dtype.kind == "f" else "biu"  # floats would be cut off
        if shape != leaf.shape or np.asarray(value).dtype.kind not in kinds:
            what = repr(value) if shape in (None, ()) else f"shape {shape} and type {np.asarray(value).dtype}"
            raise RunError(f"{name} delivered {_field(path)} of {what}; its spec says {_say(leaf)}.")


def _has_fields(observation: Tree, spec: Tree) -> bool:
    """Whether a nest has all fields of a nest of specs, and no others; an array may be a list."""
    if isinstance(spec, specs.Array):
        return not isinstance(observation, Mapping)
    if isinstance(spec, Mapping):
        same = isinstance(observation, Mapping) and observation.keys() == spec.keys()
        return same and all(_has_fields(observation[key], spec[key]) for key in spec)
    same = isinstance(observation, Sequence) and len(observation) == len(spec)
    return same and all(map(_has_fields, observation, spec))


def check_values(name: str, spec: Tree, timestep: dm_env.TimeStep) -> None:
    """Raises RunError, naming environment and field, if a number of a batch of time steps is not finite, or a discount
    is not in [0, 1].
    """
    fields: list[tuple[str, specs.Array, np.ndarray]] = [
        ("a reward", REWARD, timestep.reward),
        ("a discount", DISCOUNT, timestep.discount),
    ]
    values = tree.flatten_up_to(spec, timestep.observation, check_types=False)
    fields += [(_field(path), leaf, v) for (path, leaf), v in zip(tree.flatten_with_path(spec), values, strict=True)]
    for what, leaf, array in fields:
        if array.dtype.kind != "f":
            continue
        good, must = np.isfinite(array), "which must be finite"
        if leaf is DISCOUNT:
            good, must = (array >= 0) & (array <= 1), "in [0, 1]"
        if len(bad := np.argwhere(~good)):
            row, *place = bad[0].tolist()
            at = f" at {place}" if place else ""
            raise RunError(
                f"{name} delivered {what} of {array[tuple(bad[0])]}{at} (in environment {row} of {len(array)}); "
                f"its spec says {_say(leaf)}, {must}."
            )


def check_reward(name: str, reward: Any, discount: Any) -> None:
    """Raises RunError, naming the environment, if a reward is not finite or a discount is not in [0, 1]."""
    ranges = (("reward", REWARD, reward, "which must be finite"), ("discount", DISCOUNT, discount, "in [0, 1]"))
    for what, spec, value, must in ranges:
        try:
            fine = value is not None and math.isfinite(value) and (spec is REWARD or 0 <= value <= 1)
        except (TypeError, ValueError):
            fine = False
        if not fine:
            raise RunError(f"{name} delivered a {what} of {value!r}; its spec says {_say(spec)}, {must}.")


def _field(path: tuple[Any, ...]) -> str:
    return f"the observation {'/'.join(map(str, path))!r}" if path else "an observation"


def _say(spec: specs.Array) -> str:
    return f"{spec.dtype} of shape {spec.shape}"


def _outline(nest: Tree) -> str:
    """Returns the structure of a nest in words: the keys of a mapping, or the number of parts of a sequence."""
    if isinstance(nest, Mapping):
        return "a mapping with " + ", ".join(map(repr, nest))
    return f"{len(nest)} parts" if isinstance(nest, tuple | list) else "a single array"

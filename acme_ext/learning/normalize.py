"""Running means and variances of observations and values.

They are part of the learner's state, so they are saved and published together with the parameters.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.errors import UsageError
from acme_ext.types import Array, Params, Tree


class Moments(NamedTuple):
    """The elementwise mean and variance of all values so far; before the first values, as set by `init`."""

    count: Array  # type: ignore  # [] float32, number of values so far, at most the horizon
    mean: Tree  # float32
    variance: Tree  # float32


def init(example: Tree, variance: float = 1.0) -> Moments:
    """Returns the initial moments for a nest of arrays `[...]`, with mean 0.

    Args:
        example: the nest.
        variance: the variance before the first values. With 0, all denormalised outputs of a value network are about 0
            at first, so its first targets consist of rewards only, even if these are small.
    """
    mean = jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), jnp.float32), example)
    return Moments(jnp.zeros((), jnp.float32), mean, jax.tree.map(lambda x: jnp.full_like(x, variance), mean))


def update(moments: Moments, values: Tree, mask: Array, horizon: float = 1e8) -> Moments:
    """Returns the moments updated with more values (Chan et al. 1983, eq. 2.1).

    Args:
        moments: the moments before.
        values: `[..., *shape]`, where the moments' shape is `[*shape]`.
        mask: `[...]` 1 for values that count, 0 for others.
        horizon: a number of values. Up to this number, the moments are those of all values; beyond it, they are an
            exponential moving average over about this many values.
    """
    added = jnp.sum(mask)
    total = moments.count + added
    share = added / jnp.maximum(total, 1.0)

    def mean_of(x: Array) -> Array:
        weight = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
        return jnp.sum(weight * x, axis=tuple(range(mask.ndim))) / jnp.maximum(added, 1.0)

    def move(mean: Array, variance: Array, x: Array) -> tuple[Array, Array]:
        x = x.astype(jnp.float32)
        batch_mean = mean_of(x)
        batch_variance = mean_of(jnp.square(x - batch_mean))
        apart = batch_mean - mean
        # For the first values the share is 1; it is 0 if no value counts.
        return (
            mean + share * apart,
            (1 - share) * variance + share * batch_variance + share * (1 - share) * jnp.square(apart),
        )

    leaves, structure = jax.tree.flatten(moments.mean)
    moved = [
        move(*leaf) for leaf in zip(leaves, jax.tree.leaves(moments.variance), jax.tree.leaves(values), strict=True)
    ]
    mean, variance = (jax.tree.unflatten(structure, list(part)) for part in zip(*moved, strict=True))
    return Moments(jnp.minimum(total, horizon), mean, variance)


def normalize(moments: Moments, values: Tree, max_abs: float | None = None) -> Tree:
    """Returns `(values - mean) / stddev`, `[..., *shape]`, clipped to `[-max_abs, max_abs]` if `max_abs` is given."""

    def scale(mean: Array, deviation: Array, x: Array) -> Array:
        x = (x - mean) / deviation
        return x if max_abs is None else jnp.clip(x, -max_abs, max_abs)

    return jax.tree.map(scale, moments.mean, stddev(moments), values)


def denormalize(moments: Moments, values: Tree) -> Tree:
    """Returns `values * stddev + mean`, `[..., *shape]`: the inverse of `normalize` without clipping."""
    return jax.tree.map(lambda mean, deviation, x: x * deviation + mean, moments.mean, stddev(moments), values)


def corrected(params: Params, before: Moments, after: Moments) -> Params:
    """Returns a network's parameters with its last value layer corrected for new moments (PopArt).

    The denormalised values stay the same (van Hasselt et al. 2016, proposition 1).

    weight' = stddev / stddev' * weight,   bias' = (stddev * bias + mean - mean') / stddev'

    Args:
        params: Haiku parameters `{module: {"w": [F, N], "b": [N]}}`, with one layer named `VALUE_LAYER`.
        before: `[]` or `[N]`, the moments that the outputs were denormalised with.
        after: `[]` or `[N]`, the moments that they will be denormalised with.

    Raises:
        UsageError: there is no such layer, or more than one.
    """
    layers = [name for name in params if VALUE_LAYER in name.split("/")]
    if len(layers) != 1:
        raise UsageError(
            f"popart is true: it needs exactly one layer named {VALUE_LAYER!r}, and the network has {len(layers)}."
        )
    ratio = stddev(before) / stddev(after)
    layer = params[layers[0]]
    bias = ratio * layer["b"] + (before.mean - after.mean) / stddev(after)
    return {**params, layers[0]: {**layer, "w": ratio * layer["w"], "b": bias}}


def stddev(moments: Moments) -> Tree:
    """Returns the standard deviation `[*shape]` that `normalize` divides by."""
    return jax.tree.map(lambda variance: jnp.sqrt(variance + _EPSILON), moments.variance)


def fields_of(observation: Tree, example: Tree) -> list[Array]:
    """Returns the fields `[..., *shape]` of an observation that can be normalised.

    Integers, such as pixels, are excluded. Images and grids with channels are excluded too, because a convolution
    treats all their positions alike.

    Args:
        observation: `[..., *shape]`.
        example: an observation of the same structure `[1, *shape]`; its dtypes and shapes select the fields.
    """
    leaves = zip(jax.tree.leaves(observation), jax.tree.leaves(example), strict=True)
    return [leaf for leaf, one in leaves if _is_normalised(one)]


def normalize_fields(moments: Moments, observation: Tree, example: Tree, max_abs: float) -> Tree:
    """Returns an observation in which the fields of `fields_of` are normalised and clipped.

    Args:
        moments: the moments of these fields.
        observation: `[..., *shape]`.
        example: see `fields_of`.
        max_abs: normalised values are clipped to `[-max_abs, max_abs]`.
    """
    leaves, structure = jax.tree.flatten(observation)
    normal = iter(normalize(moments, fields_of(observation, example), max_abs))
    chosen = [_is_normalised(one) for one in jax.tree.leaves(example)]
    return jax.tree.unflatten(structure, [next(normal) if c else x for c, x in zip(chosen, leaves, strict=True)])


def _is_normalised(example: Array) -> bool:
    return jnp.issubdtype(example.dtype, jnp.floating) and example.ndim < 4


_EPSILON = 1e-8

VALUE_LAYER = "popart_value"
"""The name of a network's last value layer, by which `corrected` finds it."""

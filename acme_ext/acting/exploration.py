"""Exploration: epsilon-greedy actions, the Ape-X ladder of epsilons, and noise."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from acme_ext.acting.policy import Context
from acme_ext.ops import masking
from acme_ext.types import Array


def epsilon_greedy(keys: Array, q: Array, epsilon: Array, legal: Array | None = None) -> Array:
    """Returns actions `[B]`: uniformly random with probability epsilon, else greedy; ties are broken at random.

    Args:
        keys: `[B]` random keys.
        q: `[B, A]` action values.
        epsilon: `[B]` or `[]`.
        legal: `[B, A]` which actions are legal; None for all.
    """

    def choose(key, q, epsilon, legal):
        explore_key, action_key = jax.random.split(key)
        # The argmax is needed because XLA may compute q a second time for the comparison, with another rounding.
        best = (q == jnp.max(q)) | (jnp.arange(len(q)) == jnp.argmax(q))
        allowed = best | (jax.random.uniform(explore_key) < epsilon)
        return jax.random.categorical(action_key, jnp.where(masking.masked(allowed, legal) > 0, 0.0, -jnp.inf))

    epsilon = jnp.broadcast_to(epsilon, q.shape[:1])
    return jax.vmap(choose)(keys, masking.masked(q, legal), epsilon, legal).astype(jnp.int32)


def other_keys(keys: Array, number: int = 0) -> Array:
    """Returns random keys `[B]` that `epsilon_greedy` doesn't use if it is given the keys `[B]`.

    Args:
        keys: `[B]` random keys.
        number: other numbers give other keys.
    """
    # `epsilon_greedy` splits each key in two, which are its keys with the numbers 0 and 1.
    return jax.vmap(jax.random.fold_in, (0, None))(keys, 2 + number)


def epsilon_greedy_probabilities(q: Array, epsilon: Array | float, legal: Array | None = None) -> Array:
    """Returns the epsilon-greedy probabilities `[..., A]` of all actions; ties are shared equally.

    Args:
        q: `[..., A]` action values.
        epsilon: `[...]` or `[]`.
        legal: `[..., A]` which actions are legal; None for all.
    """
    there = jnp.ones_like(q) if legal is None else legal.astype(q.dtype)
    q = masking.masked(q, legal)
    # The argmax is needed because XLA may compute q a second time for the comparison, with another rounding. Then no
    # value equals the maximum.
    best = (q == jnp.max(q, axis=-1, keepdims=True)) | jax.nn.one_hot(jnp.argmax(q, axis=-1), q.shape[-1], dtype=bool)
    best = best * there
    uniform = there / jnp.maximum(jnp.sum(there, axis=-1, keepdims=True), 1)
    epsilon = jnp.asarray(epsilon)[..., None]
    return epsilon * uniform + (1 - epsilon) * best / jnp.maximum(jnp.sum(best, axis=-1, keepdims=True), 1)


def ladder_epsilon(rank: Array, base: float = 0.4, steepness: float = 7.0) -> Array:
    """Returns the epsilon of each environment, in the shape of `rank`.

    epsilon_i = base**(1 + steepness * i / (N - 1))   (Horgan et al. 2018, section 4.1)

    Args:
        rank: `i / (N - 1)` in [0, 1], see `Context`; a single environment has rank 0, and its epsilon is `base`.
        base: the largest epsilon.
        steepness: the smallest epsilon is `base**(1 + steepness)`; this is alpha in the paper.
    """
    return base ** (1.0 + steepness * jnp.asarray(rank))


def ladder(config: Any, *, evaluation: bool) -> Callable[[Context], Array]:
    """Returns a function `context -> epsilon [B]`: the ladder with a config's `epsilon_base` and `epsilon_steepness`.

    Each epsilon falls linearly from 1 to its final value. The decay begins when learning begins, and takes
    `epsilon_decay_steps` environment steps of the run; with 0, epsilon has its final value from the start. In
    evaluation, epsilon is `evaluation_epsilon`.
    """
    if evaluation:
        return lambda context: jnp.float32(config.evaluation_epsilon)

    def own(context: Context) -> Array:
        return ladder_epsilon(context.rank, config.epsilon_base, config.epsilon_steepness)

    if not config.epsilon_decay_steps:
        return own
    left = optax.linear_schedule(1.0, 0.0, config.epsilon_decay_steps, config.replay.steps_before_learning)
    return lambda context: own(context) + (1 - own(context)) * left(context.steps)


def normal_noise(keys: Array, size: int) -> Array:
    """Returns standard normal noise `[B, size]`; each row has its own random key of `keys` `[B]`."""
    return jax.vmap(lambda key: jax.random.normal(key, (size,)))(keys)


def uniform_noise(keys: Array, size: int) -> Array:
    """Returns uniform noise in [-1, 1], `[B, size]`; each row has its own random key of `keys` `[B]`."""
    return jax.vmap(lambda key: jax.random.uniform(key, (size,), minval=-1.0, maxval=1.0))(keys)

"""Rewards that an agent gives itself for what is new: within the episode, and over the agent's life."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from acme_ext.ops.policy import discounted_sums
from acme_ext.types import Array

_LEAST_BLOCK = 128  # rows; shorter loops take longer than what they leave out


class EpisodicMemory(NamedTuple):
    """The embeddings of an episode's observations, in rings of M rows: beyond M the oldest are overwritten."""

    embeddings: Array  # [B, D, M] float32: a row is a column, so that distances to all of them are computed at once
    written: Array  # [B] int32, how many since the episode began


def init_memory(batch: int, rows: int, size: int) -> EpisodicMemory:
    """Returns empty memories of `rows` embeddings with `size` numbers each; NumPy arrays."""
    return EpisodicMemory(np.zeros((batch, size, rows), np.float32), np.zeros(batch, np.int32))


def remember(memory: EpisodicMemory, embedding: Array, first: Array, squares: Array | None = None) -> EpisodicMemory:
    """Returns the memories with one more embedding `[B, D]` each; where an episode begins, `first` `[B]`, with it
    alone.

    Args:
        memory: as it was.
        embedding: the new ones.
        first: see above.
        squares: `[B, k]` what `nearest_distances` gave of `memory`, if it was asked: the compiler then sees that the
            memory, if it is donated, can be written in place after that, and copies none of it.
    """
    if squares is not None:
        embedding = embedding + jnp.minimum(squares[:, :1], 0)  # they are never negative
    before: Array = jnp.where(first, 0, memory.written)
    embeddings, place = jnp.asarray(memory.embeddings), before % memory.embeddings.shape[2]
    for row in range(len(before)):  # in place, which a scatter is not on the CPU
        embeddings = lax.dynamic_update_slice(embeddings, embedding[row, None, :, None], (row, 0, place[row]))
    return EpisodicMemory(embeddings, before + 1)


def nearest_distances(memory: EpisodicMemory, embedding: Array, neighbours: int) -> tuple[Array, Array]:
    """Returns the squared Euclidean distances `[B, k]` from embeddings `[B, D]` to their k nearest in the memories, the
    nearest first, and whether there are as many `[B]`: where there are not, the distances mean nothing.

    Rows that no memory has written yet are left out, in steps of an eighth of the ring: an early step of an episode
    costs less than a late one.
    """
    embeddings, written = jnp.asarray(memory.embeddings), jnp.asarray(memory.written)
    batch, size, rows = embeddings.shape
    block = min(rows, max(_LEAST_BLOCK, -(-rows // 8)))

    def search(i: Array, nearest: Array) -> Array:
        start = jnp.minimum(i * block, rows - block)  # the last block has rows of the one before too
        row = start + jnp.arange(block)
        there = (row >= i * block) & (row < written[:, None])
        # Not as a sum over an axis, and not of one slice of all D, each of which takes XLA for the CPU several times as
        # long.
        squares = sum(
            jnp.square(lax.dynamic_slice(embeddings, (0, d, start), (batch, 1, block))[:, 0] - embedding[:, d, None])
            for d in range(size)
        )
        both = jnp.concatenate([nearest, jnp.where(there, -squares, -jnp.inf)], axis=1)
        return lax.top_k(both, neighbours)[0]

    def search_written(i: Array, nearest: Array) -> Array:
        return lax.cond(i * block < jnp.max(written), search, lambda _, nearest: nearest, i, nearest)

    none = jnp.full((batch, neighbours), -jnp.inf)
    nearest: Array = lax.fori_loop(0, -(-rows // block), search_written, none)
    known = written >= neighbours
    return jnp.where(known[:, None], -nearest, 0.0), known


def moving_average(average: Array, count: Array, value: Array, horizon: float) -> tuple[Array, Array]:
    """Returns the average `[...]` with one more value `[...]`, and how many it has seen: the plain mean at first, and
    beyond `horizon` values one that forgets old ones exponentially.
    """
    count = jnp.minimum(count + 1, horizon)
    return average + (value - average) / count, count


def kernel_bonus(
    squares: Array,
    average: Array,
    *,
    kernel_epsilon: float = 1e-4,
    cluster_distance: float = 8e-3,
    pseudo_counts: float = 1e-3,
    max_similarity: float = 8.0,
) -> Array:
    """Returns the episodic bonus `[B]` (Badia et al. 2020a, algorithm 1): one over the root of a pseudo-count.

    d_k = max(d_k**2 / d_m**2 - xi, 0);   K_k = epsilon / (d_k + epsilon);   s = sqrt(sum_k K_k) + c;
    r = 1 / s, or 0 where s > s_max.

    Args:
        squares: `[B, k]` squared distances to the nearest neighbours.
        average: `[B]` d_m**2, their moving average, with `squares` in it.
        kernel_epsilon: epsilon.
        cluster_distance: xi; what is nearer counts as the same.
        pseudo_counts: c.
        max_similarity: s_max. With k neighbours s is at most sqrt(k) + c, so that the published 8 is never reached by
            the published 10.
    """
    # Where all neighbours so far lay at the same place the average is 0, and so is every distance.
    ratio = squares / jnp.maximum(average, jnp.finfo(jnp.float32).tiny)[:, None]
    distance = jnp.maximum(ratio - cluster_distance, 0.0)
    similarity = jnp.sqrt(jnp.sum(kernel_epsilon / (distance + kernel_epsilon), axis=-1)) + pseudo_counts
    return jnp.where(similarity > max_similarity, 0.0, 1.0 / similarity)


def distillation_error(prediction: Array, target: Array) -> Array:
    """Returns the error `[...]` of a predictor of a random network's features `[..., D]`, the mean of their squared
    differences (Burda et al. 2018, section 2.2; the mean over features is their implementation's).
    """
    return jnp.mean(jnp.square(prediction - lax.stop_gradient(target)), axis=-1)


def lifelong_factor(error: Array, mean: Array, stddev: Array, most: float) -> Array:
    """Returns by what the episodic bonus is multiplied, `[...]` in [1, most] (Badia et al. 2020a, section 2).

    min(max(alpha, 1), L),  alpha = 1 + (error - mean) / stddev

    Args:
        error: `[...]` of the random network's predictor.
        mean: running mean of errors.
        stddev: their running standard deviation.
        most: L.
    """
    return jnp.clip(1.0 + (error - mean) / jnp.maximum(stddev, 1e-8), 1.0, most)


def running_returns(bonus: Array, decay: Array, start: Array) -> Array:
    """Returns the sums R_t = decay_t * R_{t-1} + bonus_t `[T, B]`, by whose standard deviation a bonus is divided
    (Burda et al. 2018, section 2.4).

    Args:
        bonus: `[T, B]`.
        decay: `[T, B]` gamma_I, or 1 for what is no step.
        start: `[B]` or `[]` R_{-1}, of what was before.
    """

    def forward(total: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        total = now[1] * total + now[0]
        return total, total

    return lax.scan(forward, jnp.broadcast_to(start, bonus.shape[1:]), (bonus, decay))[1]


def continuing_advantages(
    bonus: Array, discount: float, lambda_: float, values: Array, mask: Array, first: Array
) -> Array:
    """Returns generalized advantage estimates `[T, B]` of a bonus that doesn't end with an episode (Burda et al. 2018,
    section 2.3): what the next episode brings counts too. No gradient flows through them.

    The way from an episode's last timestep to the next one's first takes no time, and its last observation's value is
    that of the next first one.

    Args:
        bonus: `[T, B]` of each step.
        discount: gamma_I.
        lambda_: in [0, 1].
        values: `[T + 1, B]` predicted sums of bonuses.
        mask: `[T, B]` 0 for what is no step.
        first: `[T + 1, B]` whether an episode begins; see `types.Sequence`.
    """
    bridge = (mask == 0) & first[1:]
    behind = jnp.concatenate([values[2:], values[-1:]])
    v_t: Array = jnp.where(jnp.concatenate([bridge[1:], jnp.zeros_like(bridge[:1])]), behind, values[1:])
    delta = mask * (bonus + discount * v_t - values[:-1])
    decay = jnp.where(bridge, 1.0, mask * discount * lambda_)
    return lax.stop_gradient(mask * discounted_sums(delta, decay))

"""Intrinsic rewards for new observations: within the episode, and over the agent's lifetime."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from acme_ext.ops.policy import discounted_sums
from acme_ext.types import Array

_LEAST_BLOCK = 128  # minimum rows per block; smaller blocks cost more time than they save


class EpisodicMemory(NamedTuple):
    """The embeddings of an episode's observations, in ring buffers of M rows; the oldest are overwritten."""

    embeddings: Array  # [B, D, M] float32; M comes last, so that distances to all rows are computed together
    written: Array  # [B] int32, number of embeddings since the episode began


def init_memory(batch: int, rows: int, size: int) -> EpisodicMemory:
    """Returns empty memories for `rows` embeddings of `size` numbers each, as NumPy arrays."""
    return EpisodicMemory(np.zeros((batch, size, rows), np.float32), np.zeros(batch, np.int32))


def remember(memory: EpisodicMemory, embedding: Array, first: Array, squares: Array | None = None) -> EpisodicMemory:
    """Returns the memories with one more embedding each; where an episode begins, the memory is cleared first.

    Args:
        memory: the memories before.
        embedding: `[B, D]` the new embeddings.
        first: `[B]` whether an episode begins.
        squares: `[B, k]` the distances that `nearest_distances` returned for `memory`, if it was called. This tells the
            compiler that the write comes after the search, so that a donated memory is updated in place, not copied.
    """
    if squares is not None:
        embedding = _after(squares[:, :1], embedding)
    before: Array = jnp.where(first, 0, memory.written)
    place, embedding = before % memory.embeddings.shape[2], jnp.asarray(embedding)

    def write(row: Array, embeddings: Array) -> Array:  # in place; a scatter would make a copy on the CPU
        return lax.dynamic_update_slice(embeddings, embedding[row][None, :, None], (row, 0, place[row]))

    return EpisodicMemory(lax.fori_loop(0, len(before), write, jnp.asarray(memory.embeddings)), before + 1)


def _after(earlier: Array, x: Array) -> Array:
    """Returns x; an optimization barrier: what uses the result is computed after `earlier`, which is never negative.

    `lax.optimization_barrier` is none on the CPU, where XLA removes it before it decides which buffers are copied: a
    step of 16 memories of 30,000 rows would take 100 ms, not 10.
    """
    return x + jnp.minimum(earlier, 0)


def nearest_distances(memory: EpisodicMemory, embedding: Array, neighbours: int) -> tuple[Array, Array]:
    """Returns the squared Euclidean distances to the k nearest neighbours `[B, k]`, and whether there are k `[B]`.

    These are the distances from embeddings `[B, D]` to the k nearest ones in their memories, in ascending order. Where
    there are fewer than k, the distances have no meaning. Rows that no memory has written yet are skipped, in blocks of
    an eighth of the buffer, so early steps of an episode are cheaper.
    """
    embeddings, written = jnp.asarray(memory.embeddings), jnp.asarray(memory.written)
    batch, size, rows = embeddings.shape
    block = min(rows, max(_LEAST_BLOCK, -(-rows // 8)))
    fullest = jnp.max(written)

    def search(i: Array, nearest: Array) -> Array:
        start = jnp.minimum(i * block, rows - block)  # the last block may overlap the one before
        row = start + jnp.arange(block)
        there = (row >= i * block) & (row < written[:, None])
        # A sum over an axis, or one slice of all D, would take several times as long with XLA on the CPU.
        squares = sum(
            jnp.square(lax.dynamic_slice(embeddings, (0, d, start), (batch, 1, block))[:, 0] - embedding[:, d, None])
            for d in range(size)
        )
        both = jnp.concatenate([nearest, jnp.where(there, -squares, -jnp.inf)], axis=1)
        return lax.top_k(both, neighbours)[0]

    # With a loop that ends early instead, `vmap` over runs would batch `i`, and the slices would become slow gathers.
    def search_written(i: Array, nearest: Array) -> Array:
        return lax.cond(i * block < fullest, search, lambda _, nearest: nearest, i, nearest)

    none = jnp.full((batch, neighbours), -jnp.inf)
    nearest: Array = lax.fori_loop(0, -(-rows // block), search_written, none)
    known = written >= neighbours
    return jnp.where(known[:, None], -nearest, 0.0), known


def moving_average(average: Array, count: Array, value: Array, horizon: float) -> tuple[Array, Array]:
    """Returns the average `[...]` updated with one more value `[...]`, and the new count of values.

    It is the mean of all values up to `horizon` of them, and an exponential moving average after that. A count in
    float32 stops at 2**24, 16.8 million, which is then the horizon.
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
    """Returns the episodic bonus `[B]` (Badia et al. 2020a, algorithm 1): 1 / the square root of a pseudo-count.

    x_k = max(d_k**2 / d_m**2 - xi, 0);   K_k = epsilon / (x_k + epsilon);   s = sqrt(sum_k K_k) + c;
    r = 1 / s, or 0 where s > s_max.

    Args:
        squares: `[B, k]` squared distances to the nearest neighbours.
        average: `[B]` d_m**2, their moving average, which includes `squares`.
        kernel_epsilon: epsilon.
        cluster_distance: xi; neighbours closer than this count as identical.
        pseudo_counts: c.
        max_similarity: s_max. With k neighbours, s is at most sqrt(k) + c, so the published value of 8 is never reached
            with the published k of 10.
    """
    # If all neighbours so far were identical, the average is 0, and so are all distances.
    ratio = squares / jnp.maximum(average, jnp.finfo(jnp.float32).tiny)[:, None]
    distance = jnp.maximum(ratio - cluster_distance, 0.0)
    similarity = jnp.sqrt(jnp.sum(kernel_epsilon / (distance + kernel_epsilon), axis=-1)) + pseudo_counts
    return jnp.where(similarity > max_similarity, 0.0, 1.0 / similarity)


def distillation_error(prediction: Array, target: Array) -> Array:
    """Returns the mean squared error `[...]` of a predictor of a random network's features `[..., D]`.

    See Burda et al. 2018, section 2.2; the mean over features is from their implementation.
    """
    return jnp.mean(jnp.square(prediction - lax.stop_gradient(target)), axis=-1)


def lifelong_factor(error: Array, mean: Array, stddev: Array, most: float) -> Array:
    """Returns the factor of the episodic bonus, `[...]` in [1, most] (Badia et al. 2020a, section 2).

    min(max(alpha, 1), L),  alpha = 1 + (error - mean) / stddev

    Args:
        error: `[...]` errors of the random network's predictor.
        mean: running mean of the errors.
        stddev: running standard deviation of the errors.
        most: L.
    """
    return jnp.clip(1.0 + (error - mean) / jnp.maximum(stddev, 1e-8), 1.0, most)


def running_returns(bonus: Array, decay: Array, start: Array) -> Array:
    """Returns the discounted sums R_t = decay_t * R_{t-1} + bonus_t `[T, B]`.

    Their running standard deviation is what bonuses are divided by (Burda et al. 2018, section 2.4).

    Args:
        bonus: `[T, B]`.
        decay: `[T, B]` gamma_I for steps, 1 for padding.
        start: `[B]` or `[]` R_{-1}, the sum before the first step.
    """

    def forward(total: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        total = now[1] * total + now[0]
        return total, total

    return lax.scan(forward, jnp.broadcast_to(start, bonus.shape[1:]), (bonus, decay))[1]


def continuing_advantages(
    bonus: Array, discount: float, lambda_: float, values: Array, mask: Array, first: Array
) -> Array:
    """Returns non-episodic generalized advantage estimates of a bonus, `[T, B]` (Burda et al. 2018, section 2.3).

    The bonuses of the next episode count too. Between an episode's last timestep and the next episode's first there is
    no discount, and the value of the last observation is that of the next episode's first observation. No gradient
    flows through the estimates.

    Args:
        bonus: `[T, B]` the bonus of each step.
        discount: gamma_I.
        lambda_: in [0, 1].
        values: `[T + 1, B]` predicted sums of bonuses.
        mask: `[T, B]` 1 for steps, 0 for others.
        first: `[T + 1, B]` whether an episode begins; see `types.Sequence`.
    """
    bridge = (mask == 0) & first[1:]
    behind = jnp.concatenate([values[2:], values[-1:]])
    v_t: Array = jnp.where(jnp.concatenate([bridge[1:], jnp.zeros_like(bridge[:1])]), behind, values[1:])
    delta = mask * (bonus + discount * v_t - values[:-1])
    decay = jnp.where(bridge, 1.0, mask * discount * lambda_)
    return lax.stop_gradient(mask * discounted_sums(delta, decay))

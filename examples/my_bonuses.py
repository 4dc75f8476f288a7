"""An exploration bonus of your own: counts of hashed observations (SimHash, Tang et al. 2017, algorithm 1)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.learning.core import LearnerCore


class State(NamedTuple):
    core: Any  # the agent's own state
    directions: Any  # [D, bits] a hash's bits are the signs of these projections
    counts: Any  # [2**bits] float32, sampled observations by hash


def by_counts(core, observation, weight=0.1, bits=12):
    """Returns a core that learns from reward + weight / sqrt(n), n counting the samples with the same hash."""
    size = sum(x[0].size for x in jax.tree.leaves(observation))

    def init(key):
        core_key, key = jax.random.split(key)
        return State(core.init(core_key), jax.random.normal(key, (size, bits)), jnp.zeros(2**bits))

    def hash_of(directions, observation):
        flat = [x.reshape(len(x), -1).astype(jnp.float32) for x in jax.tree.leaves(observation)]
        return (jnp.concatenate(flat, axis=1) @ directions > 0) @ 2 ** jnp.arange(bits)

    def step(state, sample):
        batch = sample.data
        at = hash_of(state.directions, batch.next_observation)
        counts = state.counts.at[at].add(1)
        bonus = 1 / jnp.sqrt(counts[at])
        batch = batch._replace(reward=batch.reward + weight * bonus)
        inner, metrics, errors = core.step(state.core, sample._replace(data=batch))
        seen = {"bonus": bonus.mean(), "hashes_seen": (counts > 0).mean()}
        return State(inner, state.directions, counts), {**metrics, **seen}, errors

    return LearnerCore(init, step, lambda state: core.variables(state.core))

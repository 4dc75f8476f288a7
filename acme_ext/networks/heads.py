"""From features to what an agent predicts."""

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.networks import layers
from acme_ext.types import Array


class LinearQHead(hk.Module):
    """Action values by one linear layer: `[B, F] -> [B, A]`."""

    def __init__(self, num_actions: int, name: str | None = None):
        super().__init__(name)
        self._num_actions = num_actions

    def __call__(self, features: Array) -> Array:
        return layers.Linear(self._num_actions)(features)


class DuelingQHead(hk.Module):
    """Action values as value plus centred advantage, Q = V + A - mean_a A (Wang et al. 2016, eq. 9): `[B, F] -> [B,
    A]`.
    """

    def __init__(self, num_actions: int, hidden_size: int, name: str | None = None):
        super().__init__(name)
        self._num_actions, self._hidden_size = num_actions, hidden_size

    def __call__(self, features: Array) -> Array:
        value = layers.Linear(1)(jax.nn.relu(layers.Linear(self._hidden_size)(features)))
        advantage = layers.Linear(self._num_actions)(jax.nn.relu(layers.Linear(self._hidden_size)(features)))
        return value + advantage - jnp.mean(advantage, axis=-1, keepdims=True)

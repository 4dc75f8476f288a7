"""Heads: the last layers of networks, from features to predictions."""

from collections.abc import Callable, Sequence

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.networks import layers
from acme_ext.types import Array


class LinearQHead(hk.Module):
    """Action values from one linear layer, `[B, F] -> [B, A]`."""

    def __init__(self, num_actions: int, name: str | None = None):
        super().__init__(name)
        self._num_actions = num_actions

    def __call__(self, features: Array) -> Array:
        return layers.Linear(self._num_actions)(features)


class DuelingQHead(hk.Module):
    """A dueling head, Q = V + A - mean_a A (Wang et al. 2016, eq. 9), `[B, F] -> [B, A]`."""

    def __init__(self, num_actions: int, hidden_size: int, name: str | None = None):
        super().__init__(name)
        self._num_actions, self._hidden_size = num_actions, hidden_size

    def __call__(self, features: Array) -> Array:
        value = layers.Linear(1)(jax.nn.relu(layers.Linear(self._hidden_size)(features)))
        advantage = layers.Linear(self._num_actions)(jax.nn.relu(layers.Linear(self._hidden_size)(features)))
        return value + advantage - jnp.mean(advantage, axis=-1, keepdims=True)


class ActionHead(hk.Module):
    """N outputs for each action, such as the logits of a distribution's atoms, `[..., F] -> [..., A, N]`.

    The head has one hidden layer. A dueling head has one for the state value and one for the advantages, which are
    combined as V_i + A_i - mean_a A_i for each output i (Hessel et al. 2018, 'The integrated agent').

    Args:
        num_actions: A.
        num_outputs: N.
        hidden_size: units of each hidden layer.
        dueling: whether the head is dueling.
        linears: makes an affine layer for each pair of numbers of inputs and outputs; noisy layers explore.
    """

    def __init__(
        self,
        num_actions: int,
        num_outputs: int,
        hidden_size: int,
        *,
        dueling: bool,
        linears: Callable[[Sequence[tuple[int, int]]], Sequence[Callable[[Array], Array]]] = layers.linears,
        name: str | None = None,
    ):
        super().__init__(name)
        self._num_actions, self._num_outputs, self._hidden_size = num_actions, num_outputs, hidden_size
        self._dueling, self._linears = dueling, linears

    def __call__(self, features: Array) -> Array:
        rows = (1, self._num_actions) if self._dueling else (self._num_actions,)
        inputs, hidden_size, outputs = features.shape[-1], self._hidden_size, self._num_outputs
        made = self._linears([size for n in rows for size in ((inputs, hidden_size), (hidden_size, n * outputs))])
        streams = []
        for n, hidden, last in zip(rows, made[::2], made[1::2], strict=True):
            out = last(jax.nn.relu(hidden(features)))
            streams.append(out.reshape(*out.shape[:-1], n, outputs))
        if not self._dueling:
            return streams[0]
        value, advantage = streams
        return value + advantage - jnp.mean(advantage, axis=-2, keepdims=True)


class CosineEmbedding(hk.Module):
    """IQN's features of quantile fractions tau, `[...] -> [..., size]` (Dabney et al. 2018b, eq. 4).

    ReLU(sum_i cos(pi i tau) w_i + b), with i from 0.
    """

    def __init__(self, size: int, num_cosines: int = 64, name: str | None = None):
        super().__init__(name)
        self._size, self._num_cosines = size, num_cosines

    def __call__(self, taus: Array) -> Array:
        cosines = jnp.cos(jnp.pi * taus[..., None] * jnp.arange(self._num_cosines))
        return jax.nn.relu(layers.Linear(self._size)(cosines))

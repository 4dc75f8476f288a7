"""Networks with a memory, over sequences in time-major order."""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from acme_ext.networks import layers
from acme_ext.types import Array


class LSTMState(NamedTuple):
    """What an LSTM remembers."""

    hidden: Array  # [B, H] its last output
    cell: Array  # [B, H]


def initial_lstm_state(batch: int, size: int) -> LSTMState:
    """Returns the state before anything was seen: zeros.

    They are NumPy's: replays are described by it in processes that are still to be forked, where JAX must not start.
    """
    return LSTMState(np.zeros((batch, size), np.float32), np.zeros((batch, size), np.float32))


class LSTM(hk.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997; with the forget gate of Gers et al. 2000, which starts open).

    i, f, g, o = W x_t + U h_{t-1} + b;  c_t = sigma(f + 1) c_{t-1} + sigma(i) tanh(g);  h_t = sigma(o) tanh(c_t)

    The inputs of all steps go through W in one product, before the loop over time.

    Args:
        size: H.
    """

    def __init__(self, size: int, name: str | None = None):
        super().__init__(name)
        self._size = size

    def __call__(self, inputs: Array, first: Array, state: LSTMState) -> tuple[Array, LSTMState]:
        """Runs over a sequence.

        Args:
            inputs: `[T, B, F]`.
            first: `[T, B]` bool: where an episode begins; the state is reset before that step.
            state: `[B, H]` each, before the first step.

        Returns:
            The outputs `[T, B, H]`, and the state after the last step.
        """
        size = self._size
        projected = layers.Linear(4 * size)(inputs)
        recurrent = hk.get_parameter("recurrent", (size, 4 * size), init=layers.uniform(size))

        def step(state: LSTMState, now: tuple[Array, Array]) -> tuple[LSTMState, Array]:
            projected, first = now
            hidden, cell = (jnp.where(first[:, None], 0.0, leaf) for leaf in state)
            i, f, g, o = jnp.split(projected + hidden @ recurrent, 4, axis=-1)
            cell = jax.nn.sigmoid(f + 1.0) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return LSTMState(hidden, cell), hidden

        state, outputs = lax.scan(step, state, (projected, first))
        return outputs, state

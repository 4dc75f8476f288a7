"""R2D2's recurrent Q-network."""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.networks import heads, recurrent, torsos
from acme_ext.types import Array, Tree

NO_ACTION = -1


class Inputs(NamedTuple):
    """What the network is given at every timestep."""

    observation: Tree  # [T, B, ...]
    action: Array  # [T, B] the one before; NO_ACTION at an episode's first timestep
    reward: Array  # [T, B] that came with the observation
    first: Array  # [T, B] bool, an episode's first timestep


def make_network(num_actions: int, config: R2D2Config) -> hk.Transformed:
    """Returns the network `apply(params, key, inputs: Inputs, state: LSTMState) -> (q [T, B, A], LSTMState)`.

    Torso, LSTM and head (Kapturowski et al. 2019, section 2.3); the LSTM is also given the last action, one-hot, and
    the last reward, squeezed into (-1, 1).
    """

    def q_values(inputs: Inputs, state: recurrent.LSTMState) -> tuple[Array, recurrent.LSTMState]:
        def torso(observation: Tree) -> Array:
            return torsos.default_torso(observation, config.hidden_sizes, config.image_features)

        features = hk.BatchApply(torso)(inputs.observation)
        action, reward = jax.nn.one_hot(inputs.action, num_actions), jnp.tanh(inputs.reward)[..., None]
        joined = jnp.concatenate([features, action, reward], axis=-1)
        outputs, state = recurrent.LSTM(config.lstm_size)(joined, inputs.first, state)
        if config.dueling:
            return heads.DuelingQHead(num_actions, config.lstm_size)(outputs), state
        return heads.LinearQHead(num_actions)(outputs), state

    return hk.transform(q_values)

"""IMPALA's network: a torso, maybe a memory, and two linear heads."""

from collections.abc import Callable
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.agents.impala.config import IMPALAConfig
from acme_ext.networks import layers, torsos
from acme_ext.networks.recurrent import LSTM, LSTMState, initial_lstm_state
from acme_ext.networks.resnet import ResidualTorso
from acme_ext.ops.policy import Categorical
from acme_ext.types import Array, Tree


class Inputs(NamedTuple):
    """What the network is given, in time-major order."""

    observation: Tree  # [T, B, ...]
    last_action: Array  # [T, B] int32, the one that led here; -1 at an episode's first
    last_reward: Array  # [T, B] likewise, as it is learned from; 0 at an episode's first
    first: Array  # [T, B] bool: begins an episode


class Output(NamedTuple):
    """What the network makes of it."""

    policy: Categorical  # [T, B, A]
    value: Array  # [T, B]


class Network(NamedTuple):
    """A network over sequences; one step is T = 1. It is given no random key."""

    init: Callable[[Array, Inputs, Tree], Tree]
    """`(key, inputs, state) -> params`."""

    apply: Callable[[Tree, Inputs, Tree], tuple[Output, Tree]]
    """`(params, inputs, state [B, ...]) -> (output, state after the last step [B, ...])`."""

    init_state: Callable[[int], Tree]
    """`batch -> state [B, ...]`, at the start of an episode."""


def make_network(num_actions: int, config: IMPALAConfig) -> Network:
    """Returns the network for so many actions. With `lstm_size`, an LSTM comes behind the torso, and is given the last
    action, one-hot, and the last reward too (Espeholt et al. 2018, figure 3).
    """

    def network(inputs: Inputs, state: Tree) -> tuple[Output, Tree]:
        lead = inputs.first.shape
        merged = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), inputs.observation)
        x = _torso(merged, config).reshape(*lead, -1)
        if config.lstm_size is not None:
            action = jax.nn.one_hot(inputs.last_action, num_actions)
            x = jnp.concatenate([x, action, inputs.last_reward[..., None]], axis=-1)
            x, state = LSTM(config.lstm_size)(x, inputs.first, state)
        policy, value = layers.Linear(num_actions)(x), layers.Linear(1)(x)
        return Output(Categorical(policy), value[..., 0]), state

    def init_state(batch: int) -> LSTMState | tuple[()]:
        return () if config.lstm_size is None else initial_lstm_state(batch, config.lstm_size)

    transformed = hk.without_apply_rng(hk.transform(network))
    return Network(transformed.init, transformed.apply, init_state)


def _torso(observation: Tree, config: IMPALAConfig) -> Array:
    if config.image_torso == "deep" and torsos.is_image(observation):
        return jax.nn.relu(layers.Linear(config.image_features)(ResidualTorso()(observation)))
    return torsos.default_torso(observation, config.hidden_sizes, config.image_features)

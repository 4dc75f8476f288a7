"""IQL's policy, critic and value networks."""

from typing import NamedTuple

import haiku as hk
import jax.numpy as jnp

from acme_ext import specs
from acme_ext.agents.iql.config import MAX_LOG_STDDEV, IQLConfig
from acme_ext.networks import continuous, layers, torsos
from acme_ext.ops.gaussian import Gaussian
from acme_ext.types import Array, EnvironmentSpec, Tree


class Networks(NamedTuple):
    """The networks, for actions in [-1, 1]; they use no random key."""

    action_size: int  # A
    policy: hk.Transformed  # observation [B, ...] -> Gaussian [B, A], with a tanh on its mean
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> q [B]; one of the two critics
    value: hk.Transformed  # observation [B, ...] -> v [B]


def make_networks(spec: EnvironmentSpec, config: IQLConfig, torso: str | torsos.Torso | None = None) -> Networks:
    """Returns the networks, each with its own torso, see `torsos.features`.

    The policy's standard deviation is the same in all states, as in the authors' code.
    """
    action_size = specs.action_size(spec, "IQL")

    def policy(observation: Tree) -> Gaussian:
        mean = continuous.DeterministicPolicy(action_size, config.hidden_sizes, torso=torso)(observation)
        log_stddev = hk.get_parameter("log_stddev", (action_size,), init=jnp.zeros)
        stddev = jnp.exp(jnp.clip(log_stddev, config.min_log_stddev, MAX_LOG_STDDEV))
        return Gaussian(mean, jnp.broadcast_to(stddev, mean.shape))

    def critic(observation: Tree, action: Array) -> Array:
        return continuous.Critic(config.hidden_sizes, torso=torso)(observation, action)

    def value(observation: Tree) -> Array:
        x = torsos.features(torso, observation)
        return layers.Linear(1)(layers.MLP(config.hidden_sizes)(x))[:, 0]

    return Networks(action_size, hk.transform(policy), hk.transform(critic), hk.transform(value))

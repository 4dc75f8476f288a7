"""The policy, the critic, and the meaning of the critic's outputs."""

from typing import NamedTuple

import haiku as hk
import jax.numpy as jnp

from acme_ext import specs
from acme_ext.agents.mpo.config import MPOConfig
from acme_ext.networks import continuous, torsos
from acme_ext.ops import critics
from acme_ext.ops.gaussian import Gaussian
from acme_ext.types import Array, EnvironmentSpec, Tree


class Networks(NamedTuple):
    """The networks; they use no random key."""

    action_size: int  # A
    policy: hk.Transformed  # observation [B, ...] -> Gaussian [B, A]; its samples may be outside [-1, 1]
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> output, see `value`
    value: critics.ValueModel


def make_networks(spec: EnvironmentSpec, config: MPOConfig, torso: str | torsos.Torso | None = None) -> Networks:
    """Returns the networks, each with its own torso, see `torsos.features`.

    MPO's critic outputs expected values, and DMPO's critic outputs distributions.
    """
    action_size = specs.action_size(spec, "MPO")
    value = critics.value_of(config)

    def policy(observation: Tree) -> Gaussian:
        network = continuous.GaussianPolicy(
            action_size,
            config.policy_sizes,
            layer_norm=config.layer_norm,
            init_stddev=config.init_stddev,
            min_stddev=config.min_stddev,
            torso=torso,
        )
        return network(observation)

    def critic(observation: Tree, action: Array) -> Array:
        network = continuous.Critic(
            config.critic_sizes, outputs=value.outputs, layer_norm=config.layer_norm, torso=torso
        )
        # The environment clips actions in the same way.
        return network(observation, jnp.clip(action, -1.0, 1.0))

    return Networks(action_size, hk.transform(policy), hk.transform(critic), value)

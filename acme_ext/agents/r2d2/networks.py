"""R2D2's recurrent Q-network."""

from collections.abc import Callable

import jax.numpy as jnp

from acme_ext import specs
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.networks import heads, recurrent, torsos
from acme_ext.types import Array, EnvironmentSpec, Tree


def make_network(
    spec: EnvironmentSpec,
    config: R2D2Config,
    torso: str | torsos.Torso | None = None,
    core: str | recurrent.MakeCore | None = "lstm",
) -> recurrent.RecurrentNetwork:
    """Returns the network of torso, recurrent core and head (Kapturowski et al. 2019, section 2.3).

    Its outputs are the action values `[T, B, A]`. Its reward input is the tanh of the last reward.
    """

    def features(observation: Tree) -> Array:
        return torsos.dense_features(torso, observation, config.hidden_sizes, config.image_features)

    return network_of(spec, config, features, core)


def network_of(
    spec: EnvironmentSpec,
    config: R2D2Config,
    features: Callable[[Tree], Array],
    core: str | recurrent.MakeCore | None,
) -> recurrent.RecurrentNetwork:
    """Returns the network for a function that computes features `[B, F]`; otherwise the same as `make_network`."""
    num_actions = specs.num_actions(spec, "R2D2")

    def head(x: Array) -> Array:
        if config.dueling:
            return heads.DuelingQHead(num_actions, config.core_size)(x)
        return heads.LinearQHead(num_actions)(x)

    made = recurrent.make_core(core, config.core_size)
    return recurrent.recurrent_network(spec, features, made, head, prepare_reward=jnp.tanh)

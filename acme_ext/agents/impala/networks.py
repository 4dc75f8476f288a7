"""IMPALA's network: a torso, an optional recurrent core, and two linear heads."""

from collections.abc import Callable
from typing import NamedTuple

import haiku as hk

from acme_ext import specs
from acme_ext.agents.impala.config import IMPALAConfig
from acme_ext.agents.impala.losses import clip_rewards
from acme_ext.learning.normalize import VALUE_LAYER
from acme_ext.networks import layers, recurrent, torsos
from acme_ext.ops.policy import Categorical
from acme_ext.types import Array, EnvironmentSpec, Tree


class Output(NamedTuple):
    """The network's outputs at every timestep."""

    policy: Categorical  # [T, B, A]
    value: Array  # [T, B]


def make_network(
    spec: EnvironmentSpec,
    config: IMPALAConfig,
    torso: str | torsos.Torso | None = None,
    core: str | recurrent.MakeCore | None = None,
) -> recurrent.RecurrentNetwork:
    """Returns the network, whose output is an `Output` (Espeholt et al. 2018, figure 3).

    The inputs of a recurrent core are the torso's features, the last action and the clipped last reward.
    """
    num_actions = specs.num_actions(spec, "IMPALA")

    def features(observation: Tree) -> Array:
        return torsos.dense_features(torso, observation, config.hidden_sizes, config.image_features)

    def head(x: Array) -> Output:
        policy = hk.Linear(num_actions, w_init=layers.POLICY_W_INIT)(x)
        value = layers.Linear(1, name=VALUE_LAYER if config.popart else None)(x)
        return Output(Categorical(policy), value[..., 0])

    made = recurrent.make_core(core, config.core_size)
    prepare: Callable[[Array], Array] = lambda reward: clip_rewards(reward, config.reward_clipping)  # noqa: E731
    return recurrent.recurrent_network(spec, features, made, head, prepare_reward=prepare)

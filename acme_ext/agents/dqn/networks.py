"""DQN's Q-network."""

import haiku as hk

from acme_ext import specs
from acme_ext.agents.dqn.config import QLearningConfig
from acme_ext.networks import heads, torsos
from acme_ext.types import Array, EnvironmentSpec, Tree


def make_network(
    spec: EnvironmentSpec, config: QLearningConfig, torso: str | torsos.Torso | None = None
) -> hk.Transformed:
    """Returns the network `apply(params, key, observation [B, ...]) -> q [B, A]`.

    The two streams of a dueling head follow the torso's convolutions directly (Wang et al. 2016, section 4.1).
    """
    num_actions = specs.num_actions(spec, "Q-learning")

    def q_values(observation: Tree) -> Array:
        if not config.dueling:
            x = torsos.dense_features(torso, observation, config.hidden_sizes, config.image_features)
            return heads.LinearQHead(num_actions)(x)
        x = torsos.features(torso, observation, config.hidden_sizes)
        hidden_size = config.image_features if torsos.is_image(observation) else x.shape[-1]
        return heads.DuelingQHead(num_actions, hidden_size)(x)

    return hk.transform(q_values)

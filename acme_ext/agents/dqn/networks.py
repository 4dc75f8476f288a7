"""DQN's Q-network."""

import haiku as hk

from acme_ext.agents.dqn.config import QLearningConfig
from acme_ext.networks import heads, torsos
from acme_ext.types import Array, Tree


def make_network(num_actions: int, config: QLearningConfig) -> hk.Transformed:
    """Returns the network `apply(params, key, observation [B, ...]) -> q [B, A]`, its torso chosen by the
    observation.
    """

    def q_values(observation: Tree) -> Array:
        features = torsos.default_torso(observation, config.hidden_sizes, config.image_features)
        if config.dueling:
            return heads.DuelingQHead(num_actions, features.shape[-1])(features)
        return heads.LinearQHead(num_actions)(features)

    return hk.transform(q_values)

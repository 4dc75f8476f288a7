"""Discrete BCQ's network: action values, and the probabilities of actions in the data."""

from typing import NamedTuple

import haiku as hk

from acme_ext import specs
from acme_ext.agents.bcq.config import BCQConfig
from acme_ext.networks import heads, layers, torsos
from acme_ext.types import Array, EnvironmentSpec, Tree


class Output(NamedTuple):
    """The network's outputs."""

    q: Array  # [B, A] action values
    logits: Array  # [B, A] logits of the action probabilities in the data


def make_network(spec: EnvironmentSpec, config: BCQConfig, torso: str | torsos.Torso | None = None) -> hk.Transformed:
    """Returns the network `apply(params, key, observation [B, ...]) -> Output`.

    Its two heads share a torso, see `torsos.dense_features`. With `config.dueling`, the action values' head is dueling.
    """
    num_actions = specs.num_actions(spec, "BCQ")

    def both(observation: Tree) -> Output:
        x = torsos.dense_features(torso, observation, config.hidden_sizes, config.image_features)
        hidden_size = config.image_features if torsos.is_image(observation) else x.shape[-1]
        head = heads.DuelingQHead(num_actions, hidden_size) if config.dueling else layers.Linear(num_actions)
        return Output(head(x), layers.Linear(num_actions)(x))

    return hk.transform(both)

"""How Ape-X's actors act."""

import haiku as hk

from acme_ext.acting.exploration import ladder
from acme_ext.acting.policy import Policy
from acme_ext.agents.apex.config import ApexConfig
from acme_ext.agents.dqn import acting as dqn


def make_policy(network: hk.Transformed, config: ApexConfig, *, evaluation: bool) -> Policy:
    """Returns the epsilon-greedy policy, with a different epsilon for each environment, see `exploration.ladder`.

    In evaluation epsilon is `evaluation_epsilon`.

    With prioritized replay, its extras in training are `ActorValues`, for the initial priorities of new transitions.
    """
    with_values = config.replay.prioritized and not evaluation
    return dqn.policy_of(dqn.without_keys(network), ladder(config, evaluation=evaluation), with_values=with_values)

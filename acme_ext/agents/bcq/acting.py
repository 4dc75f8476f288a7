"""How discrete BCQ acts."""

import haiku as hk

from acme_ext.acting.policy import Policy
from acme_ext.agents.bcq import losses
from acme_ext.agents.bcq.config import BCQConfig
from acme_ext.agents.dqn import acting as dqn
from acme_ext.ops import masking
from acme_ext.types import Array, Params, Tree


def make_policy(network: hk.Transformed, config: BCQConfig, *, evaluation: bool) -> Policy:
    """Returns the epsilon-greedy policy, whose greedy action is one that is likely in the data."""

    def q_values(params: Params, keys: Array, observation: Tree) -> Array:
        out = network.apply(params, None, observation)
        return losses.allowed_values(out.q, out.logits, config.threshold, masking.legal_actions(observation))

    return dqn.policy_of(q_values, dqn.epsilon_schedule(config, evaluation=evaluation))

"""How PPO acts."""

import haiku as hk

from acme_ext.acting import stochastic
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.ppo.config import AdvantageConfig
from acme_ext.agents.ppo.learning import PolicyParams, prepare
from acme_ext.specs import Bounds
from acme_ext.types import Tree


def make_policy(network: hk.Transformed, config: AdvantageConfig, bounds: Bounds | None, *, greedy: bool) -> Policy:
    """Returns the policy of a network, see `networks.make_network`; the rest as for `stochastic.make_policy`."""

    def decide(params: PolicyParams, context: Context, observation: Tree, state: Tree):
        del context
        observation = prepare(params.observations, observation, config)
        return network.apply(params.network, None, observation).policy, state

    return stochastic.make_policy(decide, bounds=bounds, greedy=greedy)

"""How PPO acts."""

from acme_ext.acting import stochastic
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.ppo.config import AdvantageConfig
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.types import Params, Tree


def make_policy(network: RecurrentNetwork, config: AdvantageConfig, *, evaluation: bool) -> Policy:
    """Returns the policy of a network, see `networks.make_network`; it samples, and in evaluation takes the likeliest
    action.
    """
    del config

    def decide(params: Params, context: Context, observation: Tree, state: Tree):
        output, state = network.step(params, context.reward, observation, state)
        return output.policy, state

    return stochastic.make_policy(
        decide, init_state=network.init_memory, remember=network.remember, evaluation=evaluation
    )

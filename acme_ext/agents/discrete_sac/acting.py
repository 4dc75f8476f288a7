"""How discrete SAC acts."""

from acme_ext.acting.policy import Context, Policy
from acme_ext.acting.stochastic import among_legal, noise_of
from acme_ext.agents.discrete_sac.config import DiscreteSACConfig
from acme_ext.agents.discrete_sac.networks import Networks
from acme_ext.ops.policy import Categorical
from acme_ext.types import Params, Tree


def make_policy(networks: Networks, config: DiscreteSACConfig, *, evaluation: bool) -> Policy:
    """Returns the policy: a sampled legal action, or in evaluation the most likely one; it does not use `config`."""
    del config

    def apply(params: Params, context: Context, observation: Tree, state: Tree):
        policy = among_legal(Categorical(networks.policy.apply(params, None, observation)), observation)
        return policy.mode() if evaluation else policy.sample(noise_of(policy, context.key)), state, ()

    return Policy(apply)

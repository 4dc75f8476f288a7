"""How IQL acts."""

from acme_ext.acting import continuous
from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Policy
from acme_ext.agents.iql.config import IQLConfig
from acme_ext.agents.iql.networks import Networks
from acme_ext.types import Array, Params, Tree


def make_policy(networks: Networks, config: IQLConfig, *, evaluation: bool) -> Policy:
    """Returns the policy: a sample; in evaluation the mean."""
    del config

    def choose(params: Params, keys: Array, observation: Tree) -> Array:
        policy = networks.policy.apply(params, None, observation)
        return policy.mode() if evaluation else policy.sample(normal_noise(keys, policy.mean.shape[-1]))

    return continuous.make_policy(choose)

"""How SAC acts."""

from acme_ext.acting import continuous
from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Policy
from acme_ext.agents.sac.config import SACConfig
from acme_ext.agents.sac.networks import Networks
from acme_ext.types import Array, Params, Tree


def make_policy(networks: Networks, config: SACConfig, *, evaluation: bool) -> Policy:
    """Returns the policy: uniformly random at first, then a sample; in evaluation the tanh of the mean."""

    def choose(params: Params, keys: Array, observation: Tree) -> Array:
        policy = networks.policy.apply(params, None, observation)
        return policy.mode() if evaluation else policy.sample(normal_noise(keys, policy.mean.shape[-1]))

    return continuous.make_policy(choose, random_steps=0 if evaluation else config.random_steps)

"""How TD3 acts."""

from acme_ext.acting import continuous
from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Policy
from acme_ext.agents.td3.config import TD3Config
from acme_ext.networks.continuous import Networks
from acme_ext.types import Array, Params, Tree


def make_policy(networks: Networks, config: TD3Config, *, evaluation: bool) -> Policy:
    """Returns the policy: first random uniform actions, then the network's actions with noise.

    In evaluation there are no random actions and no noise.
    """

    def choose(params: Params, keys: Array, observation: Tree) -> Array:
        action = networks.policy.apply(params, None, observation)
        return action if evaluation else action + config.noise_stddev * normal_noise(keys, action.shape[-1])

    return continuous.make_policy(choose, random_steps=0 if evaluation else config.random_steps)

"""How TD3 acts."""

from acme_ext.acting import continuous
from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Policy
from acme_ext.agents.td3.config import TD3Config
from acme_ext.agents.td3.networks import Networks
from acme_ext.specs import Bounds
from acme_ext.types import Array, Params, Tree


def make_policy(networks: Networks, config: TD3Config, bounds: Bounds) -> Policy:
    """Returns the policy of training: uniformly random at first, then the policy's action with noise."""

    def choose(params: Params, keys: Array, observation: Tree) -> Array:
        noise = config.noise_stddev * normal_noise(keys, bounds.size)
        return networks.policy.apply(params, None, observation) + noise

    return continuous.make_policy(choose, bounds, random_steps=config.random_steps)


def make_evaluation_policy(networks: Networks, bounds: Bounds) -> Policy:
    """Returns the policy of evaluation, without noise."""

    def choose(params: Params, keys: Array, observation: Tree) -> Array:
        return networks.policy.apply(params, None, observation)

    return continuous.make_policy(choose, bounds)

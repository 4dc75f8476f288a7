"""How SAC acts."""

from acme_ext.acting import continuous
from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Policy
from acme_ext.agents.sac.config import SACConfig
from acme_ext.agents.sac.networks import Networks
from acme_ext.specs import Bounds
from acme_ext.types import Array, Params, Tree


def make_policy(networks: Networks, config: SACConfig, bounds: Bounds) -> Policy:
    """Returns the policy of training: uniformly random at first, then a sample."""

    def choose(params: Params, keys: Array, observation: Tree) -> Array:
        return networks.policy.apply(params, None, observation).sample(normal_noise(keys, bounds.size))

    return continuous.make_policy(choose, bounds, random_steps=config.random_steps)


def make_evaluation_policy(networks: Networks, bounds: Bounds) -> Policy:
    """Returns the policy of evaluation: the tanh of the mean."""

    def choose(params: Params, keys: Array, observation: Tree) -> Array:
        return networks.policy.apply(params, None, observation).mode()

    return continuous.make_policy(choose, bounds)

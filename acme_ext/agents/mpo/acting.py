"""How MPO acts."""

from acme_ext.acting import continuous
from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Policy
from acme_ext.agents.mpo.networks import Networks
from acme_ext.specs import Bounds
from acme_ext.types import Array, Params, Tree


def make_policy(networks: Networks, bounds: Bounds, *, deterministic: bool) -> Policy:
    """Returns the policy: samples of the Gaussian, or its mean, clipped to the environment's bounds.

    Args:
        networks: see there.
        bounds: of the environment's action.
        deterministic: takes the mean.
    """

    def choose(params: Params, keys: Array, observation: Tree) -> Array:
        gaussian = networks.policy.apply(params, None, observation)
        return gaussian.mode() if deterministic else gaussian.sample(normal_noise(keys, bounds.size))

    return continuous.make_policy(choose, bounds)

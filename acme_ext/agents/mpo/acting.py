"""How MPO acts."""

from acme_ext.acting import continuous
from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Policy
from acme_ext.agents.mpo.config import MPOConfig
from acme_ext.agents.mpo.networks import Networks
from acme_ext.types import Array, Params, Tree


def make_policy(networks: Networks, config: MPOConfig, *, evaluation: bool) -> Policy:
    """Returns the policy: samples of the Gaussian, clipped to [-1, 1]; in evaluation its mean."""
    del config

    def choose(params: Params, keys: Array, observation: Tree) -> Array:
        gaussian = networks.policy.apply(params, None, observation)
        return gaussian.mode() if evaluation else gaussian.sample(normal_noise(keys, gaussian.mean.shape[-1]))

    return continuous.make_policy(choose)

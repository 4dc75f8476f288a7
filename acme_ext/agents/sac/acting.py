"""How SAC acts."""

from acme_ext.acting import continuous
from acme_ext.acting.policy import Policy
from acme_ext.agents.sac.config import SACConfig
from acme_ext.networks.continuous import Networks


def make_policy(networks: Networks, config: SACConfig, *, evaluation: bool) -> Policy:
    """Returns the policy: uniformly random at first, then a sample; in evaluation the tanh of the mean."""
    random_steps = 0 if evaluation else config.random_steps
    return continuous.gaussian_policy(networks, config, evaluation=evaluation, random_steps=random_steps)

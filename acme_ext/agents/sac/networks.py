"""SAC's policy and critics."""

from acme_ext import specs
from acme_ext.agents.sac.config import SACConfig
from acme_ext.networks import continuous, torsos
from acme_ext.types import EnvironmentSpec


def make_networks(
    spec: EnvironmentSpec, config: SACConfig, torso: str | torsos.Torso | None = None
) -> continuous.Networks:
    """Returns the networks, each with its own torso; the policy outputs a distribution."""
    return continuous.make_networks(
        continuous.SquashedGaussianPolicy,
        specs.action_size(spec, "SAC"),
        config.hidden_sizes,
        layer_norm=config.layer_norm,
        torso=torso,
    )

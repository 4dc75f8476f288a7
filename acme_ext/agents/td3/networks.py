"""TD3's policy and critics."""

from acme_ext import specs
from acme_ext.agents.td3.config import TD3Config
from acme_ext.networks import continuous, torsos
from acme_ext.types import EnvironmentSpec


def make_networks(
    spec: EnvironmentSpec, config: TD3Config, torso: str | torsos.Torso | None = None
) -> continuous.Networks:
    """Returns the networks, each with its own torso; the policy outputs an action."""
    return continuous.make_networks(
        continuous.DeterministicPolicy,
        specs.action_size(spec, "TD3"),
        config.hidden_sizes,
        layer_norm=config.layer_norm,
        torso=torso,
    )

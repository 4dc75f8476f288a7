"""MuZero's networks."""

from typing import Any

from acme_ext import specs
from acme_ext.agents.muzero.config import MuZeroConfig, PlanningConfig
from acme_ext.errors import UsageError
from acme_ext.networks import models, torsos
from acme_ext.ops import masking
from acme_ext.types import EnvironmentSpec


def make_network(
    spec: EnvironmentSpec, config: MuZeroConfig, torso: str | torsos.Torso | None = None
) -> models.ModelNetwork:
    """Returns the representation, dynamics and prediction networks.

    Raises:
        UsageError: the config has value prefixes, and the environment has two players.

    Args:
        spec: the environment's spec.
        config: the agent's config.
        torso: the torso of the representation if it is an MLP; see `torsos.features`.
    """
    if config.value_prefix and masking.player_of(spec.observations) is not None:
        raise UsageError("value_prefix is true: rewards of two players have no common sum.")
    projection = 4 * config.state_size if config.consistency_coef else 0
    prefix = config.state_size if config.value_prefix else 0
    return planning_network(spec, config, torso, projection_size=projection, prefix_size=prefix)


def planning_network(
    spec: EnvironmentSpec, config: PlanningConfig, torso: str | torsos.Torso | None, **options: Any
) -> models.ModelNetwork:
    """Returns the networks of an agent that plans.

    Args:
        spec: the environment's spec.
        config: the agent's config.
        torso: see `torsos.features`.
        options: other arguments of `models.model_network`.
    """
    return models.model_network(
        specs.num_actions(spec, type(config).__name__.removesuffix("Config")),
        config.support.num_atoms,
        kind=config.network_kind,
        torso=torso,
        hidden_sizes=config.hidden_sizes,
        state_size=config.state_size,
        channels=config.channels,
        blocks=config.blocks,
        **options,
    )

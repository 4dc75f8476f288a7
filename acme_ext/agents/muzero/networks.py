"""MuZero's networks."""

from typing import Any

from acme_ext import specs
from acme_ext.agents.muzero.config import MuZeroConfig, PlanningConfig
from acme_ext.networks import models, torsos
from acme_ext.types import EnvironmentSpec


def make_network(
    spec: EnvironmentSpec, config: MuZeroConfig, torso: str | torsos.Torso | None = None
) -> models.ModelNetwork:
    """Returns representation, dynamics and prediction.

    Args:
        spec: of the environment.
        config: the agent's.
        torso: of the representation, where that is an MLP; see `torsos.features`.
    """
    projection = 4 * config.state_size if config.consistency_coef else 0
    return planning_network(spec, config, torso, projection_size=projection)


def planning_network(
    spec: EnvironmentSpec, config: PlanningConfig, torso: str | torsos.Torso | None, **options: Any
) -> models.ModelNetwork:
    """Returns the networks of an agent that plans.

    Args:
        spec: of the environment.
        config: the agent's.
        torso: see `torsos.features`.
        options: further ones of `models.model_network`.
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

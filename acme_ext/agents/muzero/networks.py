"""MuZero's networks."""

from acme_ext import specs
from acme_ext.agents.muzero.config import MuZeroConfig
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
    return models.model_network(
        specs.num_actions(spec, "MuZero"),
        config.support.count,
        kind=config.network,
        torso=torso,
        hidden_sizes=config.hidden_sizes,
        state_size=config.state_size,
        channels=config.channels,
        blocks=config.blocks,
        projection_size=4 * config.state_size if config.consistency_coef else 0,
    )

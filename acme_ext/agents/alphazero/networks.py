"""AlphaZero's network and its game."""

from collections.abc import Mapping
from typing import NamedTuple

from acme_ext import specs
from acme_ext.agents.alphazero.config import AlphaZeroConfig
from acme_ext.agents.muzero.networks import planning_network
from acme_ext.errors import UsageError
from acme_ext.networks import models, torsos
from acme_ext.types import EnvironmentSpec


class Networks(NamedTuple):
    """A policy and value network, and the name of its game."""

    game: str  # the game whose rules are the search's model
    network: models.ModelNetwork  # without dynamics


def make_network(
    spec: EnvironmentSpec, config: AlphaZeroConfig, torso: str | torsos.Torso | None = None
) -> models.ModelNetwork:
    """Returns the policy and value network.

    Args:
        spec: the environment's spec.
        config: the agent's config.
        torso: the torso of the features if they are an MLP; see `torsos.features`.
    """
    return planning_network(spec, config, torso, learned=False)


def game_of(spec: EnvironmentSpec) -> str:
    """Returns the name of the game whose states are in the observations; raises UsageError if there are none."""
    fields = spec.observations if isinstance(spec.observations, Mapping) else {}
    for needed in (specs.ACTION_MASK, specs.PLAYER, specs.STATE):
        if needed not in fields:
            raise UsageError(
                f"AlphaZero searches by the rules of a board game, and this observation has no field {needed!r}: give "
                "it a board:GAME, with self_play and game_state."
            )
    family, _, game = fields[specs.STATE].name.partition(":")
    if family != "board":
        raise UsageError(f"AlphaZero knows the rules of board:GAME alone, not of {fields[specs.STATE].name!r}.")
    return game

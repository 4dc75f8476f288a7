"""What the builders of actor-critics share that learn from a replay of transitions."""

import dataclasses
from collections.abc import Callable
from typing import Any

from acme_ext.builders import options
from acme_ext.builders.base import FunctionalBuilder
from acme_ext.networks.torsos import Torso
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class ActorCritic(FunctionalBuilder):
    """A policy network and critics, for a continuous, bounded action unless a subclass says otherwise.

    Attributes:
        config: hyperparameters.
        torso: makes features of observations, see `networks.torsos.features`.
        networks: `(spec, config, torso) -> Networks`, of the agent's own kind.
    """

    actions = "continuous"

    torso: str | Torso | None = None
    networks: Callable[..., Any] = dataclasses.field(kw_only=True)

    def make_networks(self, spec: EnvironmentSpec) -> Any:
        return options.make_networks(self, spec, "networks")

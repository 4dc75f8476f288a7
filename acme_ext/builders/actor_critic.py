"""The base class of actor-critic builders whose agents learn from a replay of transitions."""

import dataclasses
from collections.abc import Callable
from typing import Any

from acme_ext.builders import options
from acme_ext.builders.base import FunctionalBuilder
from acme_ext.networks.torsos import Torso
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class ActorCritic(FunctionalBuilder):
    """Builds agents with a policy network and critics; the action is continuous and bounded unless a subclass differs.

    Attributes:
        config: hyperparameters.
        torso: computes features from observations; see `networks.torsos.features`.
        networks: a function `(spec, config, torso) -> Networks` that returns the networks of this agent.
    """

    actions = "continuous"

    torso: str | Torso | None = None
    networks: Callable[..., Any] = dataclasses.field(kw_only=True)

    def make_networks(self, spec: EnvironmentSpec) -> Any:
        return options.make_networks(self, spec, "networks")

"""What the builders of agents whose network may have a memory share."""

import dataclasses
from collections.abc import Callable
from typing import Any

from acme_ext.builders import options
from acme_ext.builders.base import FunctionalBuilder
from acme_ext.networks.recurrent import MakeCore
from acme_ext.networks.torsos import Torso
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class RecurrentBuilder(FunctionalBuilder):
    """A functional builder with a network of a torso and a recurrent core.

    Attributes:
        config: hyperparameters.
        torso: makes features of observations, see `networks.torsos.features`.
        core: what remembers, see `networks.recurrent.make_core`; None for nothing.
        network: `(spec, config, torso, core) -> network`, as the agent's policy and core take it: of the environment's
            spec, and of the three other fields.
    """

    torso: str | Torso | None = None
    core: str | MakeCore | None = None
    network: Callable[..., Any] = dataclasses.field(kw_only=True)

    def make_networks(self, spec: EnvironmentSpec) -> Any:
        return options.make_networks(self, spec)

"""The base class of builders whose agents may have a recurrent network."""

import dataclasses
from collections.abc import Callable
from typing import Any

from acme_ext.builders import options
from acme_ext.builders.base import FunctionalBuilder
from acme_ext.networks.recurrent import MakeCore
from acme_ext.networks.torsos import Torso
from acme_ext.types import Array, EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class RecurrentBuilder(FunctionalBuilder):
    """A functional builder with one network, which has a torso and optionally a recurrent core.

    Attributes:
        config: hyperparameters.
        torso: computes features from observations; see `networks.torsos.features`.
        core: the recurrent part of the network, see `networks.recurrent.make_core`; None for a network without memory.
        network: a function `(spec, config, torso, core) -> network`. It receives the environment's spec and the three
            other fields, and returns the network that the agent's policy and learner core use.
    """

    torso: str | Torso | None = None
    core: str | MakeCore | None = None
    network: Callable[..., Any] = dataclasses.field(kw_only=True)

    @property
    def clipping(self) -> tuple[Callable[[Array], Array], Any] | None:
        """The function by which the learner core clips rewards, and a config for a core that doesn't; None if rewards
        aren't clipped.

        With an exploration bonus, rewards are clipped before the bonus is added.
        """
        return None

    def make_networks(self, spec: EnvironmentSpec) -> Any:
        return options.make_networks(self, spec)

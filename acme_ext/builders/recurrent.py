"""The base class of builders whose agents may have a recurrent network."""

import dataclasses
from collections.abc import Callable
from typing import Any

from acme_ext.builders.base import NetworkBuilder
from acme_ext.networks.recurrent import MakeCore
from acme_ext.types import Array


@dataclasses.dataclass(frozen=True)
class RecurrentBuilder(NetworkBuilder):
    """A builder whose network optionally has a recurrent core.

    Attributes:
        core: the recurrent part of the network, see `networks.recurrent.make_core`; None for a network without memory.
            The function `network` receives it too: `(spec, config, torso, core) -> network`.
    """

    core: str | MakeCore | None = None

    @property
    def clipping(self) -> tuple[Callable[[Array], Array], Any] | None:
        """The function by which the learner core clips rewards, and a config for a core that doesn't; None if rewards
        aren't clipped.

        With an exploration bonus, rewards are clipped before the bonus is added.
        """
        return None

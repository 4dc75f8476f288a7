"""The base class of builders whose agents may have a recurrent network."""

import dataclasses

from acme_ext.builders.base import NetworkBuilder
from acme_ext.networks.recurrent import CORES, MakeCore


@dataclasses.dataclass(frozen=True)
class RecurrentBuilder(NetworkBuilder):
    """A builder whose network optionally has a recurrent core.

    Attributes:
        core: the recurrent part of the network, see `networks.recurrent.make_core`; None for a network without memory.
            The function `network` receives it too: `(spec, config, torso, core) -> network`.
    """

    parts = {**NetworkBuilder.parts, "core": CORES}

    core: str | MakeCore | None = None

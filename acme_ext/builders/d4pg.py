"""The builder of the D4PG agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.acting.values import first_error
from acme_ext.agents.d4pg import acting, learning
from acme_ext.agents.d4pg.config import SUITE, D4PGConfig, DPGConfig
from acme_ext.agents.d4pg.networks import Networks, make_networks
from acme_ext.builders.base import NetworkBuilder, Preset
from acme_ext.types import Array


@dataclasses.dataclass(frozen=True)
class D4PG(NetworkBuilder):
    """D4PG for a continuous, bounded action. The fields are `NetworkBuilder`'s."""

    name = "d4pg"
    actions = "continuous"
    presets = {"dmc": Preset({"config": SUITE})}
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: DPGConfig = D4PGConfig()
    network: Callable[..., Networks] = make_networks

    @property
    def first_error(self) -> Callable[..., Array]:
        return first_error

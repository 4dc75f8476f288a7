"""The builder of the AlphaZero agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.agents.alphazero import acting, learning, networks
from acme_ext.agents.alphazero.config import AlphaZeroConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.muzero import Planning
from acme_ext.networks.models import ModelNetwork
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class AlphaZero(Planning):
    """AlphaZero for board games whose rules a tree search can use as its model.

    The fields are MuZero's. The network's dynamics function is not used.
    """

    name = "alphazero"
    presets = {
        "board": Preset({"config": AlphaZeroConfig()}, {"board": {"self_play": True, "game_state": True}}),
    }
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)
    lookahead = staticmethod(lambda config: config.n_step or 0)

    config: AlphaZeroConfig = AlphaZeroConfig()
    network: Callable[..., ModelNetwork] = networks.make_network

    def make_networks(self, spec: EnvironmentSpec) -> networks.Networks:
        return networks.Networks(networks.game_of(spec), super().make_networks(spec))

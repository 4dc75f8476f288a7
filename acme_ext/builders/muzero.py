"""The builder of the MuZero agent."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from acme_ext import specs
from acme_ext.agents.muzero import acting, learning, networks
from acme_ext.agents.muzero.config import BOARD, MINATAR, MuZeroConfig, PlanningConfig
from acme_ext.builders.base import NetworkBuilder, Preset
from acme_ext.networks.models import ModelNetwork
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class Planning(NetworkBuilder):
    """The base class of builders of planning agents, with their replay of sequences."""

    actions = "discrete"
    searches = True
    unexportable = "it acts by a tree search"
    lookahead: ClassVar[Callable[[Any], int]]
    """A function `config -> steps`: the extra steps of a sequence that the targets of its last roots need."""

    config: PlanningConfig

    def warning(self, log: str, row: Mapping[str, Any]) -> str | None:
        c = self.config
        if (seen := row.get("target_abs_max", 0.0)) <= c.support.largest * (1 + 1e-4):
            return None
        return (
            f"a return of {seen:.4g} was learned from, and with support_size {c.support_size} values reach "
            f"{c.support.largest:.4g} only: give a larger support_size."
        )

    def make_replay(self, spec: EnvironmentSpec, networks: Any) -> SequenceReplay:
        c = self.config
        return SequenceReplay.of(
            spec,
            c.replay,
            batch_size=c.batch_size,
            discount=c.discount,
            length=c.replay.length + type(self).lookahead(c),
            extras=acting.example_extras(specs.num_actions(spec, type(self).__name__)),
            priority=functools.partial(acting.first_error, config=c),
        )


@dataclasses.dataclass(frozen=True)
class MuZero(Planning):
    """MuZero for discrete actions.

    The fields are `NetworkBuilder`'s. With a torso, the representation is an MLP.
    """

    name = "muzero"
    presets = {
        "board": Preset({"config": BOARD, "average_rate": 0.01}, {"board": {"self_play": True}}),
        "minatar": Preset({"config": MINATAR}),
    }
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)
    lookahead = staticmethod(lambda config: config.unroll_steps + (config.n_step or 0))

    config: MuZeroConfig = MuZeroConfig()
    network: Callable[..., ModelNetwork] = networks.make_network

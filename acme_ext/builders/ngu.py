"""The builder of the NGU agent."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from acme_ext import specs
from acme_ext.agents.ngu import acting, learning, networks
from acme_ext.agents.ngu.config import ATARI, NGUConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.r2d2 import R2D2
from acme_ext.learning.intrinsic import Distillation
from acme_ext.replay.base import Replay
from acme_ext.types import Array, EnvironmentSpec, Tree


@dataclasses.dataclass(frozen=True)
class NGU(R2D2):
    """NGU for discrete actions.

    The fields are R2D2's. The action-value network and the embedding network each have the torso. `network` returns an
    `NGUNetworks`.
    """

    name = "ngu"
    has_bonus = True
    unexportable = "it keeps a memory of the episode"
    presets = {kind: Preset({"config": ATARI}, preset.environment) for kind, preset in R2D2.presets.items()}
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: NGUConfig = NGUConfig()
    network: Callable[..., Any] = networks.make_networks
    average_rate: float | None = dataclasses.field(default=None, kw_only=True)

    def make_networks(self, spec: EnvironmentSpec) -> Any:
        distillation = Distillation(self.config.distillation, specs.zeros(spec.observations, 1))
        return super().make_networks(spec)._replace(distillation=distillation)

    def make_replay(self, spec: EnvironmentSpec, networks: Any) -> Replay:
        replay: Any = super().make_replay(spec, networks)
        # Each policy has its own gamma, which the learner applies. The bonus of a step comes with the next timestep.
        return dataclasses.replace(replay, discount=1.0, last_extras=True)

    def warning(self, log: str, row: Mapping[str, Any]) -> str | None:
        if log != "actor" or row["episode_length"] <= self.config.memory_rows:
            return None
        return (
            f"an episode had {row['episode_length']:,.0f} steps, and its memory forgets all but the last "
            f"{self.config.memory_rows:,}: memory_rows may be larger, which costs time and memory."
        )

    @property
    def extras(self) -> Tree:
        return acting.EXAMPLE_EXTRAS

    @property
    def first_error(self) -> Callable[..., Array]:
        return functools.partial(acting.first_error, config=self.config)

"""NGU, composed."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.ngu import acting, learning, networks
from acme_ext.agents.ngu.config import ATARI, NGUConfig
from acme_ext.agents.ngu.networks import NGUNetworks
from acme_ext.builders.base import Preset
from acme_ext.builders.r2d2 import R2D2
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.intrinsic import Distillation
from acme_ext.replay.base import Replay
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import Array, EnvironmentSpec, Tree


@dataclasses.dataclass(frozen=True)
class NGU(R2D2):
    """NGU for discrete actions.

    Attributes:
        config: hyperparameters.
        torso: makes features of observations, see `networks.torsos.features`; for the action values and the embedding.
        core: what remembers, see `networks.recurrent.make_core`.
        network: `(spec, config, torso, core) -> NGUNetworks`.
    """

    name: ClassVar[str] = "ngu"
    presets: ClassVar[Mapping[str, Preset]] = {
        kind: Preset({"config": ATARI}, preset.environment) for kind, preset in R2D2.presets.items()
    }

    config: NGUConfig = NGUConfig()
    network: Callable[..., Any] = networks.make_networks

    def make_replay(self, spec: EnvironmentSpec, networks: Any) -> Replay:
        # gamma is each policy's own, and the learner's to apply.
        return SequenceReplay.of(
            spec,
            self.config.replay,
            batch_size=self.config.batch_size,
            discount=1.0,
            state=networks.memory_spec(),
            priority=self.first_error,
            extras=self.extras,
        )

    def make_policy(self, spec: EnvironmentSpec, networks: NGUNetworks, *, evaluation: bool = False) -> Policy:
        choice = acting.exploiting() if evaluation else acting.uniform(self.config.num_arms)
        return acting.make_policy(networks, self.config, self._distillation(spec), choice, evaluation=evaluation)

    def make_core(self, spec: EnvironmentSpec, networks: NGUNetworks) -> LearnerCore:
        observation = specs.zeros(spec.observations, 1)
        return learning.make_core(networks, self.config, observation, self._distillation(spec))

    def _distillation(self, spec: EnvironmentSpec) -> Distillation:
        return Distillation(self.config.distillation, specs.zeros(spec.observations, 1))

    @property
    def extras(self) -> Tree:
        return acting.EXTRAS

    @property
    def first_error(self) -> Callable[..., Array]:
        return functools.partial(acting.first_error, config=self.config)

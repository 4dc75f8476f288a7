"""Agent57, composed."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.agent57 import acting, learning, networks
from acme_ext.agents.agent57.config import ATARI, Agent57Config
from acme_ext.agents.ngu import acting as ngu
from acme_ext.agents.ngu.networks import NGUNetworks
from acme_ext.builders.base import Preset
from acme_ext.builders.ngu import NGU
from acme_ext.learning.core import LearnerCore
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class Agent57(NGU):
    """Agent57 for discrete actions; attributes as NGU's."""

    name: ClassVar[str] = "agent57"
    presets: ClassVar[Mapping[str, Preset]] = {
        kind: Preset({"config": ATARI}, preset.environment) for kind, preset in NGU.presets.items()
    }

    config: Agent57Config = Agent57Config()
    network: Callable[..., Any] = networks.make_networks

    def make_policy(self, spec: EnvironmentSpec, networks: NGUNetworks, *, evaluation: bool = False) -> Policy:
        c = self.config
        choice = acting.best_so_far(c.num_arms) if evaluation else acting.by_bandit(c)
        preferred = functools.partial(acting.combined_values, rescaling_epsilon=c.rescaling_epsilon)
        distillation = self._distillation(spec)
        policy = ngu.make_policy(networks, c, distillation, choice, evaluation=evaluation, preferred=preferred)
        return policy if evaluation else policy._replace(standing=functools.partial(_standing, num_arms=c.num_arms))

    def make_core(self, spec: EnvironmentSpec, networks: NGUNetworks) -> LearnerCore:
        observation = specs.zeros(spec.observations, 1)
        return learning.make_core(networks, self.config, observation, self._distillation(spec))


def _standing(run: ngu.Run, num_arms: int) -> ngu.Run:
    """Returns what the evaluation's policy is given as its own `run`; its distances begin with none."""
    return ngu.Run(acting.standing(run, num_arms), ngu.Distances(ngu.ZERO, ngu.ZERO))

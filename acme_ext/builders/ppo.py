"""The builder of the PPO agent."""

import dataclasses
import functools
from collections.abc import Callable

from acme_ext import specs
from acme_ext.acting import stochastic
from acme_ext.agents.ppo import learning, losses, networks
from acme_ext.agents.ppo.config import ATARI, CONTROL, MINATAR, AdvantageConfig, PPOConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.recurrent import RecurrentBuilder
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.types import Array, EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class PPO(RecurrentBuilder):
    """PPO for discrete and for bounded, continuous actions.

    The fields are `RecurrentBuilder`'s. The network's output is described in `agents.ppo.networks`.
    """

    name = "ppo"
    presets = {
        "atari": Preset({"config": ATARI, "average_rate": None}),
        "minatar": Preset({"config": MINATAR}),
        "dmc": Preset({"config": CONTROL, "average_rate": None}),
    }
    policy_of = staticmethod(stochastic.network_policy)
    core_of = staticmethod(learning.make_core)

    config: AdvantageConfig = PPOConfig()
    network: Callable[..., RecurrentNetwork] = networks.make_network
    average_rate: float | None = dataclasses.field(default=0.1, kw_only=True)  # about the last 10 batches

    @property
    def clipping(self) -> tuple[Callable[[Array], Array], AdvantageConfig] | None:
        if (most := self.config.max_abs_reward) is None:
            return None
        clip = functools.partial(losses.clip_rewards, max_abs=most)
        return clip, dataclasses.replace(self.config, max_abs_reward=None)

    def make_networks(self, spec: EnvironmentSpec) -> RecurrentNetwork:
        if not specs.is_discrete(spec):
            specs.action_size(spec, type(self).__name__)
        return super().make_networks(spec)

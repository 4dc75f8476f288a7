"""The builder of the Agent57 agent."""

import dataclasses
from collections.abc import Callable
from typing import Any

from acme_ext.agents.agent57 import acting, learning, networks
from acme_ext.agents.agent57.config import ATARI, Agent57Config
from acme_ext.builders.base import Preset
from acme_ext.builders.ngu import NGU


@dataclasses.dataclass(frozen=True)
class Agent57(NGU):
    """Agent57 for discrete actions. The fields are NGU's."""

    name = "agent57"
    presets = {kind: Preset({"config": ATARI}, preset.environment) for kind, preset in NGU.presets.items()}
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: Agent57Config = Agent57Config()
    network: Callable[..., Any] = networks.make_networks

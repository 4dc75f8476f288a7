"""The builder of the Ape-X DQN agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.acting.values import first_error
from acme_ext.agents.apex import acting
from acme_ext.agents.apex.config import ATARI, MINATAR, ApexConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.dqn import DQN
from acme_ext.types import Array


@dataclasses.dataclass(frozen=True)
class ApexDQN(DQN):
    """Ape-X DQN for discrete actions.

    It learns as DQN does. Each environment has its own epsilon, and each actor computes the initial priorities of its
    transitions. The fields are DQN's.
    """

    name = "apex"
    presets = {
        # All 18 actions (Kapturowski et al. 2019, section 2.3, about Ape-X).
        "atari": Preset(
            {"config": ATARI, "average_rate": None},
            {"atari": {"full_action_set": True}, "envpool": {"full_action_space": True}},
        ),
        "minatar": Preset({"config": MINATAR}),
    }
    policy_of = staticmethod(acting.make_policy)

    config: ApexConfig = ApexConfig()

    @property
    def first_error(self) -> Callable[..., Array]:
        return first_error

"""Discrete SQIL's hyperparameters."""

import dataclasses

from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.agents.sqil.config import check_replay
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class DiscreteSQILConfig(DQNConfig):
    """SQIL (Reddy et al. 2020) for discrete actions, whose other numbers are DQN's."""

    replay: TransitionConfig = TransitionConfig(demo_ratio=0.5)  # Reddy et al. 2020, section 2

    def __post_init__(self):
        super().__post_init__()
        check_replay(self.replay)

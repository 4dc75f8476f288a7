"""Discrete CQL's hyperparameters."""

import dataclasses

from acme_ext.agents.dqn import config as dqn
from acme_ext.config.types import NonNegative
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class DiscreteCQLConfig(dqn.DQNConfig):
    """Discrete CQL (Kumar et al. 2020), with DQN's other hyperparameters."""

    # Weight of the penalty; 1 for a tenth of Atari's data and 4 for a hundredth, Kumar et al. 2020, appendix F.
    penalty_coef: NonNegative = 1.0
    replay: TransitionConfig = TransitionConfig()  # one step: later actions are not the learned policy's


MINATAR = DiscreteCQLConfig(**vars(dqn.MINATAR))
"""The values of DQN's `MINATAR`."""

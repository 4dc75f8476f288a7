"""Discrete BCQ's hyperparameters."""

import dataclasses

from acme_ext.agents.dqn import config as dqn
from acme_ext.config.types import NonNegative, Share
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class BCQConfig(dqn.DQNConfig):
    """Discrete BCQ (Fujimoto et al. 2019), with DQN's other hyperparameters."""

    threshold: Share = 0.3  # tau: excludes actions with a smaller p(a) / max p; section 4
    logits_coef: NonNegative = 0.01  # weight of the squared logits; the authors' code
    replay: TransitionConfig = TransitionConfig()  # one step: later actions are not the learned policy's


MINATAR = dataclasses.replace(BCQConfig(**vars(dqn.MINATAR)), double=True)  # Fujimoto et al. 2019, algorithm 1
"""The values of DQN's `MINATAR`, with double Q-learning."""

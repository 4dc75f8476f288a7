"""Discrete BCQ's hyperparameters."""

import dataclasses

from acme_ext.agents.dqn import config as dqn
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils.checks import NonNegative, Share


@dataclasses.dataclass(frozen=True)
class BCQConfig(dqn.DQNConfig):
    """Discrete BCQ (Fujimoto et al. 2019b), whose other numbers are DQN's."""

    threshold: Share = 0.3  # tau: actions less likely than this beside the likeliest are left out; section 4
    logits_coef: NonNegative = 0.01  # weight of the squared logits; the authors' code
    replay: TransitionConfig = TransitionConfig()  # one step: what follows is not the learned policy's


MINATAR = dataclasses.replace(BCQConfig(**vars(dqn.MINATAR)), double=True)  # Fujimoto et al. 2019b, algorithm 1
"""The numbers of DQN's `MINATAR`, with double Q-learning."""

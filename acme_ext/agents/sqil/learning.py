"""SQIL's learning: like SAC's or DQN's, with different rewards."""

import dataclasses
from typing import Any

from acme_ext.learning.core import LearnerCore
from acme_ext.types import Sample


def rewarded(core: LearnerCore) -> LearnerCore:
    """Returns a learner core that replaces the transitions' rewards (Reddy et al. 2020, algorithm 1).

    The rewards are 1 for demonstrations and 0 for all other transitions.
    """

    def step(state: Any, sample: Sample) -> Any:
        return core.step(state, sample._replace(data=sample.data._replace(reward=sample.is_demo)))

    return dataclasses.replace(core, step=step)

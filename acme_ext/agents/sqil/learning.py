"""SQIL's learning: SAC's or DQN's, of other rewards."""

import dataclasses
from typing import Any

from acme_ext.learning.core import LearnerCore
from acme_ext.types import Sample


def rewarded(core: LearnerCore) -> LearnerCore:
    """Returns a core of transitions that is given a reward of 1 for each demonstration and 0 for each other (Reddy et
    al. 2020, algorithm 1), whatever the environment's rewards are.
    """

    def step(state: Any, sample: Sample) -> Any:
        return core.step(state, sample._replace(data=sample.data._replace(reward=sample.is_demo)))

    return dataclasses.replace(core, step=step)

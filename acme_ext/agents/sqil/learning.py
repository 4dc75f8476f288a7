"""SQIL's learning: SAC's, of other rewards."""

import dataclasses
from typing import Any

from acme_ext.agents.sac import learning as sac
from acme_ext.agents.sqil.config import SQILConfig
from acme_ext.learning.core import LearnerCore
from acme_ext.networks.continuous import Networks
from acme_ext.types import Sample, Tree


def make_core(networks: Networks, config: SQILConfig, observation: Tree) -> LearnerCore[sac.State]:
    """Returns SQIL's learner core; arguments as for SAC's."""
    return rewarded(sac.make_core(networks, config, observation))


def rewarded(core: LearnerCore) -> LearnerCore:
    """Returns a core of transitions that is given a reward of 1 for each demonstration and 0 for each other (Reddy et
    al. 2020, algorithm 1), whatever the environment's rewards are.
    """

    def step(state: Any, sample: Sample) -> Any:
        return core.step(state, sample._replace(data=sample.data._replace(reward=sample.is_demo)))

    return dataclasses.replace(core, step=step)

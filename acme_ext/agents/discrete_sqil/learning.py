"""Discrete SQIL's learning: DQN's, of other rewards."""

import haiku as hk

from acme_ext.agents.discrete_sqil.config import DiscreteSQILConfig
from acme_ext.agents.dqn import learning as dqn
from acme_ext.agents.sqil.learning import rewarded
from acme_ext.learning.core import LearnerCore, State
from acme_ext.types import Tree


def make_core(network: hk.Transformed, config: DiscreteSQILConfig, observation: Tree) -> LearnerCore[State]:
    """Returns discrete SQIL's learner core; arguments as for DQN's."""
    return rewarded(dqn.make_core(network, config, observation))

"""Agent57's learning: like NGU's, but with two kinds of values, each with its own reward and its own optimizer."""

import functools

import optax

from acme_ext.agents.agent57.acting import combined_values
from acme_ext.agents.agent57.config import Agent57Config
from acme_ext.agents.agent57.networks import PARTS
from acme_ext.agents.ngu import learning as ngu
from acme_ext.agents.ngu.learning import State
from acme_ext.agents.ngu.networks import NGUNetworks
from acme_ext.agents.r2d2 import learning as r2d2
from acme_ext.agents.r2d2.learning import Task
from acme_ext.learning.core import LearnerCore
from acme_ext.types import Sequence, Tree


def make_core(networks: NGUNetworks, config: Agent57Config, observation: Tree) -> LearnerCore[State]:
    """Returns Agent57's learner core; the arguments are the same as for NGU.

    One network learns the values of the reward, and the other one the values of the bonus. Both use Retrace with the
    same target policy, which is epsilon-greedy in the combined values. A sequence's priority is computed from the sum
    of the absolute errors of both.
    """

    def task_of(batch: Sequence) -> Task:
        task, bonus, beta = ngu.asked(batch, config)
        preferred = functools.partial(combined_values, beta=beta, rescaling_epsilon=config.rescaling_epsilon)
        return task._replace(rewards=(batch.reward[1:], bonus), preferred=preferred)

    optimizer = optax.multi_transform({name: r2d2.adam(config) for name in PARTS}, {name: name for name in PARTS})
    values = r2d2.make_core(networks.values, config, ngu.example(observation), task_of=task_of, optimizer=optimizer)
    return ngu.with_bonus(values, networks, config, observation)

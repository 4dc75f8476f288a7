"""Discrete CQL's learning: DQN's loss and a penalty."""

import haiku as hk
import jax.numpy as jnp

from acme_ext.agents.discrete_cql import losses
from acme_ext.agents.discrete_cql.config import DiscreteCQLConfig
from acme_ext.agents.dqn import learning as dqn
from acme_ext.learning.core import LearnerCore, LossOutput, State
from acme_ext.ops import masking
from acme_ext.types import Array, Params, Transition, Tree


def make_core(network: hk.Transformed, config: DiscreteCQLConfig, observation: Tree) -> LearnerCore[State]:
    """Returns discrete CQL's learner core; the arguments are the same as for DQN."""
    td_loss = dqn.loss_of(network, config)

    def loss(
        params: Params, target_params: Params, batch: Transition, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        of_td, output = td_loss(params, target_params, batch, weight, key)
        q_tm1 = network.apply(params, key, batch.observation)
        q_tm1 = masking.masked(q_tm1, masking.legal_actions(batch.observation))
        penalty = jnp.mean(weight * losses.conservative_penalty(q_tm1, batch.action))
        return of_td + config.penalty_coef * penalty, output._replace(metrics={**output.metrics, "penalty": penalty})

    return dqn.core_of_loss(loss, lambda key: network.init(key, observation), config)

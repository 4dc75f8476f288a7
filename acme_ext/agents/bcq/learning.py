"""Discrete BCQ's learning."""

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.agents.bcq import losses
from acme_ext.agents.bcq.config import BCQConfig
from acme_ext.agents.dqn import learning as dqn
from acme_ext.agents.dqn import losses as q_losses
from acme_ext.learning.core import LearnerCore, LossOutput, State
from acme_ext.ops import masking, value
from acme_ext.types import Array, Params, Transition, Tree


def make_core(network: hk.Transformed, config: BCQConfig, observation: Tree) -> LearnerCore[State]:
    """Returns discrete BCQ's learner core (Fujimoto et al. 2019, algorithm 1).

    loss = DQN's loss - mean log p(a | o) + logits_coef * mean logits**2

    DQN's target only uses actions that are likely in the data, see `losses.allowed_values`.
    """

    def loss(
        params: Params, target_params: Params, batch: Transition, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        del key
        tm1 = network.apply(params, None, batch.observation)
        t, t_value = (network.apply(p, None, batch.next_observation) for p in (params, target_params))
        legal = masking.legal_actions(batch.next_observation)
        selector = losses.allowed_values(t.q if config.double else t_value.q, t.logits, config.threshold, legal)
        error = q_losses.td_error(tm1.q, batch.action, batch.reward, batch.discount, t_value.q, selector)
        of_td = q_losses.q_loss(error, weight, config.huber_delta)
        logits = masking.masked(tm1.logits, masking.legal_actions(batch.observation))
        of_data = -jnp.mean(weight * value.take_action(jax.nn.log_softmax(logits), batch.action))
        small = config.logits_coef * jnp.mean(jnp.square(tm1.logits))
        metrics = {"q_mean": jnp.mean(tm1.q), "td_error_abs": jnp.mean(jnp.abs(error)), "imitation_loss": of_data}
        return of_td + of_data + small, LossOutput(metrics, jnp.abs(error))

    return dqn.core_of_loss(loss, lambda key: network.init(key, observation), config)

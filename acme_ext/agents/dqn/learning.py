"""DQN's learning: the Q-loss in the core for agents with a single loss."""

from collections.abc import Callable

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from acme_ext.agents.dqn import losses
from acme_ext.agents.dqn.config import QLearningConfig
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, Loss, LossOutput, State, TargetUpdate, single_loss_core
from acme_ext.ops import masking
from acme_ext.types import Array, Params, Transition, Tree


def make_optimizer(config: QLearningConfig) -> optax.GradientTransformation:
    """Returns Adam or centered RMSProp, with gradient clipping by global norm."""
    learning_rate = optimizers.decayed(config.learning_rate, config.learning_rate_decay_steps)
    if config.optimizer == "adam":
        optimizer = optax.adam(learning_rate, eps=config.adam_epsilon)
    else:
        optimizer = optax.rmsprop(learning_rate, config.rmsprop_decay, config.rmsprop_epsilon, centered=True)
    return optimizers.bounded(optimizer, config.max_gradient_norm)


def make_core(network: hk.Transformed, config: QLearningConfig, observation: Tree) -> LearnerCore[State]:
    """Returns DQN's learner core."""
    return core_of_loss(loss_of(network, config), lambda key: network.init(key, observation), config)


def loss_of(network: hk.Transformed, config: QLearningConfig) -> Loss:
    """Returns DQN's loss for a network."""

    def loss(
        params: Params, target_params: Params, batch: Transition, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        # Noisy networks use independent noise for each evaluation (Fortunato et al. 2018, eq. 17).
        key_tm1, key_value, key_selector = jax.random.split(key, 3)
        q_tm1 = network.apply(params, key_tm1, batch.observation)
        q_t_value = network.apply(target_params, key_value, batch.next_observation)
        q_t_selector = network.apply(params, key_selector, batch.next_observation) if config.double else q_t_value
        q_t_selector = masking.masked(q_t_selector, masking.legal_actions(batch.next_observation))
        error = losses.td_error(q_tm1, batch.action, batch.reward, batch.discount, q_t_value, q_t_selector)
        metrics = {"q_mean": jnp.mean(q_tm1), "td_error_abs": jnp.mean(jnp.abs(error))}
        return losses.q_loss(error, weight, config.huber_delta), LossOutput(metrics, jnp.abs(error))

    return loss


def core_of_loss(loss: Loss, init_params: Callable[[Array], Params], config: QLearningConfig) -> LearnerCore[State]:
    """Returns the core of an agent with another loss, and with DQN's optimizer and target network."""
    target_update = TargetUpdate(config.target_period, config.target_rate)
    return single_loss_core(loss, init_params, make_optimizer(config), target_update=target_update)

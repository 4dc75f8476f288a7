"""R2D2's learning: the networks over sequences with burn-in, in the shared core of agents with one loss."""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
from jax import lax

from acme_ext.agents.r2d2 import losses
from acme_ext.agents.r2d2.acting import RecurrentState
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.agents.r2d2.networks import NO_ACTION, Inputs
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, LossOutput, TargetUpdate, single_loss_core
from acme_ext.types import Array, Params, Sequence


def make_core(network: hk.Transformed, config: R2D2Config, example: Inputs, state: RecurrentState) -> LearnerCore:
    """Returns R2D2's learner core.

    Args:
        network: see `networks.make_network`.
        config: the agent's.
        example: inputs `[1, 1, ...]`, for the parameters' shapes.
        state: of a batch of one, likewise.
    """

    def loss(
        params: Params, target_params: Params, batch: Sequence, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        inputs = network_inputs(batch)
        q = values(network, params, inputs, batch.state.core, config.burn_in)
        q_target = values(network, target_params, inputs, batch.state.core, config.burn_in)
        learned = slice(config.burn_in, None)
        mask = batch.mask[learned]
        error = losses.td_error(
            q,
            batch.action[learned],
            batch.reward[1:][learned],
            batch.discount[learned],
            q_target,
            mask,
            config.n_step,
            config.rescaling_epsilon,
        )
        steps = jnp.maximum(jnp.sum(mask), 1)
        metrics = {
            "q_mean": jnp.sum(mask * jnp.mean(q[:-1], axis=-1)) / steps,
            "td_error_abs": jnp.sum(jnp.abs(error)) / steps,
            "steps_share": jnp.mean(mask),
        }
        priority = losses.priority(error, mask, config.priority_max_share, config.priority_offset)
        return losses.sequence_loss(error, weight), LossOutput(metrics, lax.stop_gradient(priority))

    return single_loss_core(
        loss,
        lambda key: network.init(key, example, state.core),
        optimizers.adam(config.learning_rate, config.max_gradient_norm, epsilon=config.adam_epsilon),
        target_update=TargetUpdate(config.target_period, config.target_rate),
        importance_exponent=lambda steps: config.importance_exponent,
    )


def network_inputs(batch: Sequence) -> Inputs:
    """Returns what the policy's network was given at the timesteps of sequences, `[T + 1, B, ...]`."""
    action = jnp.concatenate([batch.state.action[None], batch.action])
    return Inputs(batch.observation, jnp.where(batch.first, NO_ACTION, action), batch.reward, batch.first)


def values(network: hk.Transformed, params: Params, inputs: Inputs, state: Any, burn_in: int) -> Array:
    """Returns the action values `[T + 1 - burn_in, B, A]` after a burn-in of so many timesteps, through which no
    gradient flows (Kapturowski et al. 2019, section 3).
    """
    if burn_in:
        _, state = network.apply(params, None, jax.tree.map(lambda x: x[:burn_in], inputs), state)
    after = jax.tree.map(lambda x: x[burn_in:], inputs)
    q, _ = network.apply(params, None, after, lax.stop_gradient(state))
    return q

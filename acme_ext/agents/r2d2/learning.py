"""R2D2's learning: the networks over sequences with burn-in, in the shared core of agents with one loss."""

import jax
import jax.numpy as jnp
from jax import lax

from acme_ext.agents.r2d2 import losses
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, LossOutput, State, TargetUpdate, single_loss_core
from acme_ext.networks.recurrent import Inputs, RecurrentNetwork
from acme_ext.ops import masking
from acme_ext.types import Array, Params, Sequence, Tree


def make_core(network: RecurrentNetwork, config: R2D2Config, observation: Tree) -> LearnerCore[State]:
    """Returns R2D2's learner core.

    Args:
        network: see `networks.make_network`.
        config: the agent's.
        observation: an example `[1, ...]`, for the parameters' shapes.
    """
    burn_in = config.replay.burn_in

    def loss(
        params: Params, target_params: Params, batch: Sequence, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        inputs, state = network.inputs_of(batch), network.core_state_of(batch)
        q = values(network, params, inputs, state, burn_in)
        q_target = values(network, target_params, inputs, state, burn_in)
        learned = slice(burn_in, None)
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
            masking.legal_actions(jax.tree.map(lambda x: x[learned], batch.observation)),
        )
        steps = jnp.maximum(jnp.sum(mask), 1)
        metrics = {
            "q_mean": jnp.sum(mask * jnp.mean(q[:-1], axis=-1)) / steps,
            "td_error_abs": jnp.sum(jnp.abs(error)) / steps,
            "steps_share": jnp.mean(mask),
        }
        of_sequence = losses.sequence_error(error, mask, config.priority_max_share)
        return losses.sequence_loss(error, weight), LossOutput(metrics, lax.stop_gradient(of_sequence))

    return single_loss_core(
        loss,
        lambda key: network.init(key, observation),
        optimizers.adam(config.learning_rate, config.max_gradient_norm, epsilon=config.adam_epsilon),
        target_update=TargetUpdate(config.target_period, config.target_rate),
    )


def values(network: RecurrentNetwork, params: Params, inputs: Inputs, state: Tree, burn_in: int) -> Array:
    """Returns the action values `[T + 1 - burn_in, B, A]` after a burn-in of so many timesteps, through which no
    gradient flows (Kapturowski et al. 2019, section 3).
    """
    if burn_in:
        _, state = network.unroll(params, jax.tree.map(lambda x: x[:burn_in], inputs), state)
    after = jax.tree.map(lambda x: x[burn_in:], inputs)
    q, _ = network.unroll(params, after, lax.stop_gradient(state))
    return q

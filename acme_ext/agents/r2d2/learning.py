"""R2D2's learning: recurrent networks are unrolled over sequences with burn-in."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from acme_ext.agents.r2d2 import losses
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, Loss, LossOutput, State, TargetUpdate, single_loss_core
from acme_ext.networks.recurrent import Inputs, RecurrentNetwork
from acme_ext.ops import masking
from acme_ext.types import Array, Params, Sequence, Tree


class Steps(NamedTuple):
    """The steps of sequences that are learned from: those after the burn-in."""

    action: Array  # [T, B]
    reward: Array  # [T, B]
    discount: Array  # [T, B] including the agent's discount
    mask: Array  # [T, B] 1 where there is a step
    legal: Array | None  # [T + 1, B, A] the legal actions; None if all are legal
    probability: Array | None  # [T, B] of the action under the policy that took it; only with Retrace


def make_core(network: RecurrentNetwork, config: R2D2Config, observation: Tree) -> LearnerCore[State]:
    """Returns R2D2's learner core.

    Args:
        network: see `networks.make_network`.
        config: the agent's config.
        observation: an example of the network's input `[1, ...]`, for the parameters' shapes.
    """

    def loss(
        params: Params, target_params: Params, batch: Sequence, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        steps = steps_of(batch, config)
        q = values_of(network, params, batch, config)
        q_target = values_of(network, target_params, batch, config)
        error = td_error(q, q_target, steps, config)
        priority = losses.sequence_error(error, steps.mask, config.priority_max_share)
        return losses.sequence_loss(error, weight), output(q, jnp.abs(error), priority, steps)

    return core_of_loss(loss, network, config, observation)


def core_of_loss(
    loss: Loss,
    network: RecurrentNetwork,
    config: R2D2Config,
    observation: Tree,
    optimizer: optax.GradientTransformation | None = None,
) -> LearnerCore[State]:
    """Returns the core of an agent with another loss, and with R2D2's target network and optimizer, unless given."""
    target_update = TargetUpdate(config.target_period, config.target_rate)
    init = functools.partial(network.init, observation=observation)
    return single_loss_core(loss, init, optimizer or adam(config), target_update=target_update)


def steps_of(batch: Sequence, config: R2D2Config) -> Steps:
    """Returns the steps of a batch's sequences after the burn-in."""
    after = jax.tree.map(lambda x: x[config.replay.burn_in :], batch._replace(state=()))
    probability = None if config.retrace_lambda is None else after.extras.probability[: len(after.mask)]
    legal = masking.legal_actions(after.observation)
    return Steps(after.action, after.reward[1:], after.discount, after.mask, legal, probability)


def values_of(network: RecurrentNetwork, params: Params, batch: Sequence, config: R2D2Config) -> Any:
    """Returns the action values `[T + 1, B, A]` after the burn-in; a tuple for a network with several kinds of them."""
    return values(network, params, network.inputs_of(batch), network.core_state_of(batch), config.replay.burn_in)


def td_error(q: Array, q_target: Array, steps: Steps, config: R2D2Config, *, preferred: Array | None = None) -> Array:
    """Returns the errors `[T, B]` of action values `[T + 1, B, A]`: Retrace's, or else double Q-learning's.

    Retrace's target policy is epsilon-greedy in the values `preferred`; None for `q`.
    """
    a_tm1, r_t, discount_t, mask, legal, mu_tm1 = steps
    common = {"rescaling_epsilon": config.rescaling_epsilon, "legal": legal}
    if mu_tm1 is None:
        return losses.td_error(q, a_tm1, r_t, discount_t, q_target, mask, config.n_step, **common)
    preferred = q if preferred is None else preferred
    trace = {"lambda_": config.retrace_lambda, "target_epsilon": config.retrace_epsilon}
    return losses.retrace_error(q, preferred, a_tm1, mu_tm1, r_t, discount_t, q_target, mask, **trace, **common)


def output(preferred: Array, size: Array, priority: Array, steps: Steps) -> LossOutput:
    """Returns the metrics and priorities of a loss.

    Args:
        preferred: `[T + 1, B, A]` the values for action selection.
        size: `[T, B]` the absolute errors.
        priority: `[B]`.
        steps: the steps that were learned from.
    """
    count = jnp.maximum(jnp.sum(steps.mask), 1)
    metrics = {
        "q_mean": jnp.sum(steps.mask * jnp.mean(preferred[:-1], axis=-1)) / count,
        "td_error_abs": jnp.sum(size) / count,
        "steps_share": jnp.mean(steps.mask),
    }
    return LossOutput(metrics, lax.stop_gradient(priority))


def adam(config: R2D2Config) -> optax.GradientTransformation:
    """Returns the default optimizer for one network."""
    learning_rate = optimizers.decayed(config.learning_rate, config.learning_rate_decay_steps)
    return optimizers.adam(learning_rate, config.max_gradient_norm, epsilon=config.adam_epsilon)


def values(network: RecurrentNetwork, params: Params, inputs: Inputs, state: Tree, burn_in: int) -> Any:
    """Returns the action values `[T + 1 - burn_in, B, A]` after a burn-in, or a tuple of several kinds of values.

    The burn-in unrolls the network over the first `burn_in` timesteps; no gradient flows through it (Kapturowski et al.
    2019, section 3).
    """
    if burn_in:
        _, state = network.unroll(params, jax.tree.map(lambda x: x[:burn_in], inputs), state)
    after = jax.tree.map(lambda x: x[burn_in:], inputs)
    q, _ = network.unroll(params, after, lax.stop_gradient(state))
    return q

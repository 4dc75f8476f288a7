"""R2D2's learning: recurrent networks are unrolled over sequences with burn-in."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from acme_ext.agents.r2d2 import losses
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, LossOutput, State, TargetUpdate, single_loss_core
from acme_ext.networks.recurrent import Inputs, RecurrentNetwork
from acme_ext.ops import masking
from acme_ext.types import Array, Params, Sequence, Tree


class Task(NamedTuple):
    """The learning task for a batch of sequences."""

    batch: Sequence  # the network's inputs
    rewards: tuple[Array, ...]  # [T, B] each; one for each kind of values that the network outputs
    discount: Array  # [T, B] including the agent's discount
    mask: Array  # [T, B] 1 where there is a step to learn from
    observation: Tree  # [T + 1, B, ...] the environment's observations
    preferred: Callable[[tuple[Array, ...]], Array] = lambda q: q[0]
    """`kinds of values [T, B, A] -> [T, B, A]`: the values for action selection."""


def own_task(batch: Sequence) -> Task:
    """Returns R2D2's task, with the environment's reward."""
    return Task(batch, (batch.reward[1:],), batch.discount, batch.mask, batch.observation)


def make_core(
    network: RecurrentNetwork,
    config: R2D2Config,
    observation: Tree,
    *,
    task_of: Callable[[Sequence], Task] = own_task,
    optimizer: optax.GradientTransformation | None = None,
) -> LearnerCore[State]:
    """Returns R2D2's learner core.

    Args:
        network: see `networks.make_network`; its output may also be a tuple of several kinds of values.
        config: the agent's config.
        observation: an example of the network's input `[1, ...]`, for the parameters' shapes.
        task_of: returns the learning task for a batch.
        optimizer: None for Adam with the config's settings.
    """
    burn_in = config.replay.burn_in
    learned = slice(burn_in, None)

    def errors(q: tuple[Array, ...], q_target: tuple[Array, ...], task: Task) -> list[Array]:
        """Returns the TD errors `[T, B]` of each kind of values."""
        if config.retrace_lambda is None:
            error = functools.partial(losses.td_error, n=config.n_step)
        else:
            error = functools.partial(
                losses.retrace_error,
                preferred=task.preferred(q),
                mu_tm1=task.batch.extras.probability[learned],
                lambda_=config.retrace_lambda,
                target_epsilon=config.retrace_epsilon,
            )
        of_all = {
            "a_tm1": task.batch.action[learned],
            "discount_t": task.discount[learned],
            "mask": task.mask[learned],
            "rescaling_epsilon": config.rescaling_epsilon,
            "legal": masking.legal_actions(jax.tree.map(lambda x: x[learned], task.observation)),
        }
        kinds = zip(q, task.rewards, q_target, strict=True)
        return [error(q, r_t=reward[learned], q_target=q_target, **of_all) for q, reward, q_target in kinds]

    def loss(
        params: Params, target_params: Params, batch: Sequence, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        task = task_of(batch)
        inputs, state = network.inputs_of(task.batch), network.core_state_of(batch)
        q, q_target = (
            q if isinstance(q := values(network, each, inputs, state, burn_in), tuple) else (q,)
            for each in (params, target_params)
        )
        mask = task.mask[learned]
        each = errors(q, q_target, task)
        steps = jnp.maximum(jnp.sum(mask), 1)
        size: Any = sum(map(jnp.abs, each))
        metrics = {
            "q_mean": jnp.sum(mask * jnp.mean(task.preferred(q)[:-1], axis=-1)) / steps,
            "td_error_abs": jnp.sum(size) / steps,
            "steps_share": jnp.mean(mask),
        }
        of_sequence = losses.sequence_error(size, mask, config.priority_max_share)
        total: Any = sum(losses.sequence_loss(error, weight) for error in each)
        return total, LossOutput(metrics, lax.stop_gradient(of_sequence))

    return single_loss_core(
        loss,
        lambda key: network.init(key, observation),
        optimizer or adam(config),
        target_update=TargetUpdate(config.target_period, config.target_rate),
    )


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

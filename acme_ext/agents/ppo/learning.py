"""PPO's learning: what a batch of unrolls says is computed once, and then learned from in several epochs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from acme_ext.agents.ppo import losses
from acme_ext.agents.ppo.config import AdvantageConfig, PPOConfig
from acme_ext.agents.ppo.networks import Output
from acme_ext.learning import normalize, optimizers
from acme_ext.learning.core import LearnerCore, Trained, sgd_step
from acme_ext.learning.normalize import Moments
from acme_ext.learning.on_policy import Published, lag, masked_mean
from acme_ext.ops.policy import importance_ratios, truncated_generalized_advantage_estimation
from acme_ext.types import Array, Params, Sample, Sequence, Tree

PolicyLoss = Callable[[Array, Array, Array], Array]
"""`(log_prob [B], behaviour_log_prob [B], advantage [B]) -> loss [B]`."""


class PolicyParams(NamedTuple):
    """What the policy is applied with."""

    network: Params
    observations: Moments  # of the observations that `network` was trained on


class State(NamedTuple):
    """Everything a resume needs."""

    trained: Trained
    observations: Moments
    values: Moments  # []
    key: Array  # the random key of all steps to come
    steps: Array  # [] int32, learner steps taken: batches


class Steps(NamedTuple):
    """A minibatch of single steps, with what was computed for them once."""

    observation: Tree  # [B, ...] normalised
    action: Array  # [B, ...] as the policy sampled it
    log_prob: Array  # [B] by the policy that took the action
    advantage: Array  # [B]
    target: Array  # [B] for the value, normalised
    mask: Array  # [B]


def make_core(network: hk.Transformed, config: PPOConfig, observation: Tree) -> LearnerCore:
    """Returns PPO's learner core; arguments as for `core_of_policy_loss`."""

    def policy_loss(log_prob: Array, behaviour_log_prob: Array, advantage: Array) -> Array:
        ratios = importance_ratios(log_prob, behaviour_log_prob)
        return losses.clipped_surrogate_pg_loss(ratios, advantage, config.clip)

    learning_rate = optimizers.decayed(
        config.learning_rate, config.learning_rate_decay_steps, updates=config.num_epochs * config.num_minibatches
    )
    optimizer = optax.adam(learning_rate, eps=config.adam_epsilon)
    return core_of_policy_loss(
        policy_loss, network, config, optimizer, observation, epochs=config.num_epochs, parts=config.num_minibatches
    )


def prepare(moments: Moments, observation: Tree, config: AdvantageConfig) -> Tree:
    """Returns observations `[..., *shape]` as the network takes them: their floating-point fields normalised."""
    if not config.normalize_observations:
        return observation
    return normalize.normalize_fields(moments, observation, config.max_abs_observation)


def core_of_policy_loss(
    policy_loss: PolicyLoss,
    network: hk.Transformed,
    config: AdvantageConfig,
    optimizer: optax.GradientTransformation,
    observation: Tree,
    *,
    epochs: int,
    parts: int,
) -> LearnerCore:
    """Returns the core of an agent that learns from advantages; a step takes a batch of unrolls.

    loss = mean policy_loss + value_cost * mean (V - V_target)**2 - entropy_cost * mean entropy

    Args:
        policy_loss: see `PolicyLoss`.
        network: see `networks.make_network`.
        config: the agent's.
        optimizer: takes a gradient whose norm is bounded already.
        observation: an example `[1, ...]`, for the parameters' shapes.
        epochs: times that each step of a batch is learned from.
        parts: minibatches that each epoch cuts the batch into, at random.
    """
    optimizer = optimizers.bounded(optimizer, config.max_gradient_norm)

    def init(key: Array) -> State:
        key, params_key = jax.random.split(key)
        params = network.init(params_key, observation)
        first = jax.tree.map(
            lambda x: x[0], normalize.floating_fields(observation) if config.normalize_observations else ()
        )
        return State(
            trained=Trained(params, optimizer.init(params)),
            observations=normalize.init(first),
            values=normalize.init(jnp.zeros(())),
            key=key,
            steps=jnp.zeros((), jnp.int32),
        )

    def loss(params: Params, steps: Steps) -> tuple[Array, dict[str, Array]]:
        output: Output = network.apply(params, None, steps.observation)
        log_prob, entropy = output.policy.log_prob(steps.action), output.policy.entropy()
        advantage = steps.advantage
        if config.normalize_advantages:
            advantage = losses.normalized_advantages(advantage, steps.mask)
        of_policy = masked_mean(policy_loss(log_prob, steps.log_prob, advantage), steps.mask)
        of_value = masked_mean(losses.value_loss(output.value, steps.target), steps.mask)
        metrics = {
            "policy_loss": of_policy,
            "value_loss": of_value,
            "entropy": masked_mean(entropy, steps.mask),
            "kl": masked_mean(steps.log_prob - log_prob, steps.mask),
        }
        total = of_policy + config.value_cost * of_value - config.entropy_cost * metrics["entropy"]
        return total, metrics

    def prepared(state: State, unrolls: Sequence) -> tuple[Steps, Moments]:
        """Returns the batch's steps `[T * B]`, and the values' moments that their targets are normalised with."""
        lead = unrolls.reward.shape
        normal = prepare(state.observations, unrolls.observation, config)
        output: Output = network.apply(state.trained.params, None, jax.tree.map(lambda x: _merge(x, 2), normal))
        values = output.value.reshape(lead)
        if config.normalize_values:
            values = normalize.denormalize(state.values, values)
        advantage = truncated_generalized_advantage_estimation(
            unrolls.reward[1:], unrolls.discount, config.gae_lambda, values, unrolls.mask
        )
        target, moments = advantage + values[:-1], state.values
        if config.normalize_values:
            moments = normalize.update(moments, target, unrolls.mask, config.value_horizon)
            target = normalize.normalize(moments, target)
        steps = Steps(
            observation=jax.tree.map(lambda x: x[:-1], normal),
            # Of a continuous action, the environment was given what the bounds left of it.
            action=unrolls.extras.get("action", unrolls.action),
            log_prob=unrolls.extras["log_prob"],
            advantage=advantage,
            target=target,
            mask=unrolls.mask,
        )
        return jax.tree.map(lambda x: _merge(x, 2), steps), moments

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], None]:
        unrolls: Sequence = sample.data
        steps, values = prepared(state, unrolls)
        key, shuffle_key = jax.random.split(state.key)
        order = jax.vmap(lambda key: jax.random.permutation(key, steps.mask.size))(
            jax.random.split(shuffle_key, epochs)
        )

        def learn(trained: Trained, chosen: Array) -> tuple[Trained, dict[str, Array]]:
            minibatch = jax.tree.map(lambda x: x[chosen], steps)
            trained, descent = sgd_step(loss, optimizer, trained, minibatch)
            return trained, {"loss": descent.loss, "gradient_norm": descent.gradient_norm, **descent.aux}

        trained, metrics = jax.lax.scan(learn, state.trained, order.reshape(epochs * parts, -1))
        observations = state.observations
        if config.normalize_observations:
            seen = jax.tree.map(lambda x: x[:-1], normalize.floating_fields(unrolls.observation))
            observations = normalize.update(observations, seen, unrolls.mask)
        metrics = {**jax.tree.map(jnp.mean, metrics), **lag(state.steps, unrolls)}
        return State(trained, observations, values, key, state.steps + 1), metrics, None

    def variables(state: State) -> dict[str, Any]:
        return {"policy": Published(PolicyParams(state.trained.params, state.observations), state.steps)}

    return LearnerCore(init, step, variables)


def _merge(x: Array, axes: int) -> Array:
    """Makes the first axes of an array one."""
    return jnp.asarray(x).reshape(-1, *x.shape[axes:])

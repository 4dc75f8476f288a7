"""The learning of MPO, and of DMPO, whose critic outputs distributions."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.agents.mpo import losses
from acme_ext.agents.mpo.config import MPOConfig
from acme_ext.agents.mpo.networks import Networks
from acme_ext.learning.core import LearnerCore, TargetUpdate, TrainState, policy_params, sgd_step
from acme_ext.learning.optimizers import adam, decayed
from acme_ext.ops.gaussian import Gaussian
from acme_ext.types import Array, Params, Sample, Transition, Tree


class State(NamedTuple):
    """The learning state, with everything that is needed to resume."""

    policy: TrainState
    critic: TrainState
    duals: TrainState  # losses.Duals
    target_policy: Params
    target_critic: Params
    key: Array  # random key for the next steps
    steps: Array  # [] int32, learner steps taken


def make_core(networks: Networks, config: MPOConfig, observation: Tree) -> LearnerCore[State]:
    """Returns the learner core.

    At the last observation of each transition, actions are sampled from the target policy. They are used twice: the
    critic bootstraps from their mean value, and the E-step computes weights for them.
    """
    rates = (config.policy_learning_rate, config.critic_learning_rate)
    policy_optimizer, critic_optimizer = (
        adam(decayed(rate, config.learning_rate_decay_steps), config.max_gradient_norm) for rate in rates
    )
    dual_optimizer = adam(config.dual_learning_rate, None)
    follow = TargetUpdate(config.target_period, config.target_rate)

    def init(key: Array) -> State:
        policy_key, critic_key, key = jax.random.split(key, 3)
        policy = networks.policy.init(policy_key, observation)
        critic = networks.critic.init(critic_key, observation, jnp.zeros((1, networks.action_size)))
        duals = losses.start_duals(
            config.init_temperature, config.init_alpha_mean, config.init_alpha_stddev, networks.action_size
        )
        return State(
            TrainState(policy, policy_optimizer.init(policy)),
            TrainState(critic, critic_optimizer.init(critic)),
            TrainState(duals, dual_optimizer.init(duals)),
            policy,
            critic,
            key,
            jnp.zeros((), jnp.int32),
        )

    def critic_loss(params: Params, batch: Transition, weight: Array, output_t: Array):
        output_tm1 = networks.critic.apply(params, None, batch.observation, batch.action)
        found = networks.value.loss(output_tm1, batch.reward, batch.discount, output_t)
        return jnp.mean(weight * found.loss), found

    def policy_loss(
        params: Params, duals: losses.Duals, observation: Tree, target: Gaussian, actions: Array, weights: Array
    ):
        online: Gaussian = networks.policy.apply(params, None, observation)
        # Mean and standard deviation are fitted separately, each combined with the target policy's other one.
        fit = losses.weighted_log_likelihood(Gaussian(online.mean, target.stddev), actions, weights)
        fit += losses.weighted_log_likelihood(Gaussian(target.mean, online.stddev), actions, weights)
        kls = losses.mean_kl(target, online.mean), losses.stddev_kl(target, online.stddev)
        alphas = duals.values()
        held = jnp.sum(alphas.alpha_mean * kls[0]) + jnp.sum(alphas.alpha_stddev * kls[1])
        return held - fit, (kls, jnp.mean(online.stddev))

    def dual_loss(duals: losses.Duals, q: Array, cost: Array, kls: tuple[Array, Array]):
        values = duals.values()
        loss = losses.temperature_loss(q, values.temperature, config.epsilon)
        if config.epsilon_penalty is not None:
            loss += losses.temperature_loss(cost, values.penalty_temperature, config.epsilon_penalty)
        loss += losses.multiplier_loss(kls[0], values.alpha_mean, config.epsilon_mean)
        loss += losses.multiplier_loss(kls[1], values.alpha_stddev, config.epsilon_stddev)
        return loss, ()

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], Array]:
        batch: Transition = sample.data
        key, noise_key = jax.random.split(state.key)

        target: Gaussian = networks.policy.apply(state.target_policy, None, batch.next_observation)
        noise = jax.random.normal(noise_key, (config.num_samples, *target.mean.shape))
        actions = target.sample(noise)
        output_t = _on_samples(networks.critic.apply, state.target_critic, batch.next_observation, actions)

        duals = TrainState(state.duals.params.projected(), state.duals.optimizer)
        values: losses.Duals = duals.params.values()
        q, cost = networks.value.mean(output_t), losses.bounds_cost(actions)
        weights = losses.improved_weights(q, values.temperature)
        e_step_kl = losses.weights_kl(weights)
        if config.epsilon_penalty is not None:
            weights += losses.improved_weights(cost, values.penalty_temperature)

        critic, of_critic = sgd_step(critic_loss, critic_optimizer, state.critic, batch, sample.weight, output_t)
        policy, of_policy = sgd_step(
            policy_loss,
            policy_optimizer,
            state.policy,
            duals.params,
            batch.next_observation,
            target,
            actions,
            weights,
        )
        kls, stddev = of_policy.aux
        error = jnp.abs(of_critic.aux.td_error)
        duals, of_duals = sgd_step(dual_loss, dual_optimizer, duals, q, cost, kls)

        steps = state.steps + 1
        new_state = State(
            policy,
            critic,
            duals,
            follow(policy.params, state.target_policy, steps),
            follow(critic.params, state.target_critic, steps),
            key,
            steps,
        )
        norms = jnp.stack([of_critic.gradient_norm, of_policy.gradient_norm, of_duals.gradient_norm])
        metrics = {
            "loss": of_critic.loss + of_policy.loss + of_duals.loss,
            "gradient_norm": jnp.linalg.norm(norms),
            "critic_loss": of_critic.loss,
            "policy_loss": of_policy.loss,
            "q_mean": jnp.mean(q),
            "td_error_abs": jnp.mean(error),
            "temperature": values.temperature,
            "alpha_mean": jnp.mean(values.alpha_mean),
            "alpha_stddev": jnp.mean(values.alpha_stddev),
            "stddev": stddev,
            # KL divergences as fractions of their bounds.
            "e_step_kl_used": e_step_kl / config.epsilon,
            "mean_kl_used": jnp.mean(kls[0]) / config.epsilon_mean,
            "stddev_kl_used": jnp.mean(kls[1]) / config.epsilon_stddev,
            **jax.tree.map(jnp.mean, of_critic.aux.metrics),
        }
        return new_state, metrics, error

    return LearnerCore(init, step, policy_params)


def _on_samples(apply: Any, params: Params, observation: Tree, actions: Array) -> Array:
    """Returns the critic's outputs `[N, B, ...]` for N actions `[N, B, A]` at each observation `[B, ...]`."""
    return jax.vmap(lambda action: apply(params, None, observation, action))(actions)

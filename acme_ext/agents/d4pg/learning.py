"""The learning of D4PG, and of Ape-X DPG, whose critic outputs expected values."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from acme_ext.agents.d4pg import losses
from acme_ext.agents.d4pg.config import DPGConfig
from acme_ext.agents.d4pg.networks import Networks
from acme_ext.learning.core import LearnerCore, TargetUpdate, TrainState, sgd_step
from acme_ext.learning.optimizers import adam, decayed
from acme_ext.types import Array, Params, Sample, Transition, Tree


class State(NamedTuple):
    """The learning state, with everything that is needed to resume.

    Steps are deterministic, so there is no random key.
    """

    policy: TrainState
    critic: TrainState
    target_policy: Params
    target_critic: Params
    steps: Array  # [] int32, learner steps taken


class PolicyParams(NamedTuple):
    """The parameters that actors get."""

    policy: Params
    critic: Params  # () unless actors compute initial priorities


def make_core(networks: Networks, config: DPGConfig, observation: Tree) -> LearnerCore[State]:
    """Returns the learner core (Barth-Maron et al. 2018, algorithm 1, lines 4 to 9)."""
    rates = (config.policy_learning_rate, config.critic_learning_rate)
    policy_optimizer, critic_optimizer = (
        adam(decayed(rate, config.learning_rate_decay_steps), config.max_gradient_norm) for rate in rates
    )
    if config.max_policy_gradient is not None:
        policy_optimizer = optax.chain(optax.clip(config.max_policy_gradient), policy_optimizer)
    follow = TargetUpdate(config.target_period, config.target_rate)

    def init(key: Array) -> State:
        policy_key, critic_key = jax.random.split(key)
        policy = networks.policy.init(policy_key, observation)
        critic = networks.critic.init(critic_key, observation, jnp.zeros((1, networks.action_size)))
        return State(
            TrainState(policy, policy_optimizer.init(policy)),
            TrainState(critic, critic_optimizer.init(critic)),
            policy,
            critic,
            jnp.zeros((), jnp.int32),
        )

    def critic_loss(params: Params, target_policy: Params, target_critic: Params, batch: Transition, weight: Array):
        a_t = networks.policy.apply(target_policy, None, batch.next_observation)
        output_t = networks.critic.apply(target_critic, None, batch.next_observation, a_t)
        output_tm1 = networks.critic.apply(params, None, batch.observation, batch.action)
        found = networks.value.loss(output_tm1, batch.reward, batch.discount, output_t[None])
        return jnp.mean(weight * found.loss), found

    def policy_loss(params: Params, critic: Params, observation: Tree):
        def q_sum(action: Array) -> tuple[Array, Array]:
            q = networks.value.mean(networks.critic.apply(critic, None, observation, action))
            return jnp.sum(q), q

        action = networks.policy.apply(params, None, observation)
        dqda, q = jax.grad(q_sum, has_aux=True)(action)
        return jnp.mean(losses.dpg_loss(action, dqda)), q

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], Array]:
        batch: Transition = sample.data
        critic, of_critic = sgd_step(
            critic_loss, critic_optimizer, state.critic, state.target_policy, state.target_critic, batch, sample.weight
        )
        # The policy's gradient uses the critic from before its update.
        policy, of_policy = sgd_step(
            policy_loss, policy_optimizer, state.policy, state.critic.params, batch.observation
        )
        steps = state.steps + 1
        new_state = State(
            policy,
            critic,
            follow(policy.params, state.target_policy, steps),
            follow(critic.params, state.target_critic, steps),
            steps,
        )
        error = jnp.abs(of_critic.aux.td_error)
        metrics = {
            "loss": of_critic.loss,
            "gradient_norm": jnp.hypot(of_critic.gradient_norm, of_policy.gradient_norm),
            "policy_loss": of_policy.loss,
            "q_mean": jnp.mean(of_policy.aux),
            "td_error_abs": jnp.mean(error),
            **jax.tree.map(jnp.mean, of_critic.aux.metrics),
        }
        return new_state, metrics, error

    def variables(state: State) -> dict[str, Any]:
        return {"policy": PolicyParams(state.policy.params, state.critic.params if config.replay.prioritized else ())}

    return LearnerCore(init, step, variables)

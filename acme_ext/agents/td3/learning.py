"""TD3's learning."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from acme_ext.agents.td3 import losses
from acme_ext.agents.td3.config import TD3Config
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, TrainState, policy_params, sgd_step
from acme_ext.networks.continuous import Networks, apply_twins, init_twins
from acme_ext.types import Array, Params, Sample, Transition, Tree


class State(NamedTuple):
    """The learning state, with everything that is needed to resume."""

    policy: TrainState
    critics: TrainState  # both critics; each array is [2, ...]
    target_policy: Params
    target_critics: Params
    key: Array  # random key for the next steps
    steps: Array  # [] int32, learner steps taken


PolicyLoss = Callable[[Array, Array, Transition], Array]
"""`(q [B], action [B, A], batch) -> loss []`, where q are the first critic's values of the policy's actions."""


def make_core(
    networks: Networks,
    config: TD3Config,
    observation: Tree,
    *,
    loss_of_policy: PolicyLoss = lambda q, action, batch: losses.policy_loss(q),
) -> LearnerCore[State]:
    """Returns TD3's learner core (Fujimoto et al. 2018, algorithm 1).

    Args:
        networks: see `networks.make_networks`.
        config: the agent's config.
        observation: an example `[1, ...]`, for the parameters' shapes.
        loss_of_policy: the policy's loss, see `PolicyLoss`; the default is TD3's.
    """
    falling = functools.partial(optimizers.decayed, config.learning_rate, config.learning_rate_decay_steps)
    optimizer, policy_optimizer = (optax.adam(falling(updates=n)) for n in (1, 1 / config.policy_period))

    def init(key: Array) -> State:
        key, policy_key, critic_key = jax.random.split(key, 3)
        policy = networks.policy.init(policy_key, observation)
        critics = init_twins(networks.critic.init, critic_key, observation, jnp.zeros((1, networks.action_size)))
        return State(
            policy=TrainState(policy, policy_optimizer.init(policy)),
            critics=TrainState(critics, optimizer.init(critics)),
            target_policy=policy,
            target_critics=critics,
            key=key,
            steps=jnp.zeros((), jnp.int32),
        )

    def q_values(params: Params, observation: Tree, action: Array) -> Array:
        return apply_twins(networks.critic.apply, params, observation, action)

    def critic_loss(
        critics: Params, state: State, batch: Transition, weight: Array, key: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        q_tm1 = q_values(critics, batch.observation, batch.action)
        a_t = networks.policy.apply(state.target_policy, None, batch.next_observation)
        noise = jax.random.normal(key, a_t.shape)
        a_t = losses.smoothed_action(a_t, noise, config.target_noise_stddev, config.max_target_noise)
        q_t = q_values(state.target_critics, batch.next_observation, a_t)
        error = losses.td_error(q_tm1, batch.reward, batch.discount, q_t)
        return losses.critic_loss(error, weight), (q_tm1, error)

    def policy_loss(policy: Params, critic: Params, batch: Transition) -> tuple[Array, None]:
        action = networks.policy.apply(policy, None, batch.observation)
        q = networks.critic.apply(critic, None, batch.observation, action)
        return loss_of_policy(q, action, batch), None

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], Array]:
        batch: Transition = sample.data
        key, noise_key = jax.random.split(state.key)
        critics, of_critics = sgd_step(critic_loss, optimizer, state.critics, state, batch, sample.weight, noise_key)
        q_tm1, error = of_critics.aux
        steps = state.steps + 1

        def update() -> tuple[TrainState, Params, Params, Array]:
            first = jax.tree.map(lambda leaf: leaf[0], critics.params)
            policy, of_policy = sgd_step(policy_loss, policy_optimizer, state.policy, first, batch)
            target_policy = optax.incremental_update(policy.params, state.target_policy, config.target_rate)
            target_critics = optax.incremental_update(critics.params, state.target_critics, config.target_rate)
            return policy, target_policy, target_critics, of_policy.gradient_norm

        def wait() -> tuple[TrainState, Params, Params, Array]:
            return state.policy, state.target_policy, state.target_critics, jnp.zeros(())

        policy, target_policy, target_critics, policy_norm = jax.lax.cond(
            steps % config.policy_period == 0, update, wait
        )
        metrics = {
            "loss": of_critics.loss,
            "gradient_norm": jnp.hypot(of_critics.gradient_norm, policy_norm),
            "q_mean": jnp.mean(q_tm1),
        }
        new_state = State(policy, critics, target_policy, target_critics, key, steps)
        return new_state, metrics, jnp.mean(jnp.abs(error), axis=0)

    return LearnerCore(init, step, policy_params)

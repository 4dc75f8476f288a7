"""IQL's learning."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from acme_ext.agents.iql import losses
from acme_ext.agents.iql.config import IQLConfig
from acme_ext.agents.iql.networks import Networks
from acme_ext.learning.core import LearnerCore, TrainState, policy_params, sgd_step
from acme_ext.networks.continuous import apply_twins, init_twins
from acme_ext.types import Array, Params, Sample, Transition, Tree


class State(NamedTuple):
    """The learning state, with everything that is needed to resume."""

    policy: TrainState
    critics: TrainState  # both critics; each array is [2, ...]
    value: TrainState
    target_critics: Params


def make_core(networks: Networks, config: IQLConfig, observation: Tree) -> LearnerCore[State]:
    """Returns IQL's learner core (Kostrikov et al. 2022, algorithm 1, in the order of the authors' code)."""
    optimizer = optax.adam(config.learning_rate)

    def init(key: Array) -> State:
        policy_key, critic_key, value_key = jax.random.split(key, 3)
        action = jnp.zeros((1, networks.action_size))
        critics = init_twins(networks.critic.init, critic_key, observation, action)
        policy, value = networks.policy.init(policy_key, observation), networks.value.init(value_key, observation)
        return State(
            policy=TrainState(policy, optimizer.init(policy)),
            critics=TrainState(critics, optimizer.init(critics)),
            value=TrainState(value, optimizer.init(value)),
            target_critics=critics,
        )

    def q_values(params: Params, batch: Transition) -> Array:
        return apply_twins(networks.critic.apply, params, batch.observation, batch.action)

    def value_loss(value: Params, sample: Sample, q: Array) -> tuple[Array, None]:
        v = networks.value.apply(value, None, sample.data.observation)
        return jnp.mean(sample.weight * losses.expectile_loss(q - v, config.expectile)), None

    def policy_loss(policy: Params, sample: Sample, better: Array) -> tuple[Array, None]:
        distribution = networks.policy.apply(policy, None, sample.data.observation)
        return losses.policy_loss(distribution, sample.data.action, sample.weight * better), None

    def critic_loss(critics: Params, sample: Sample, target: Array) -> tuple[Array, tuple[Array, Array]]:
        return losses.critic_loss(q_values(critics, sample.data), target, sample.weight)

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], Array]:
        batch: Transition = sample.data
        q = jnp.min(q_values(state.target_critics, batch), axis=0)
        value, of_value = sgd_step(value_loss, optimizer, state.value, sample, q)
        v = networks.value.apply(value.params, None, batch.observation)
        better = losses.advantage_weights(q - v, config.inverse_temperature, config.max_weight)
        policy, of_policy = sgd_step(policy_loss, optimizer, state.policy, sample, better)
        v_t = networks.value.apply(value.params, None, batch.next_observation)
        target = config.reward_scale * batch.reward + batch.discount * v_t
        critics, of_critics = sgd_step(critic_loss, optimizer, state.critics, sample, target)
        target_critics = optax.incremental_update(critics.params, state.target_critics, config.target_rate)
        q_tm1, error = of_critics.aux
        norms = [info.gradient_norm for info in (of_critics, of_value, of_policy)]
        metrics = {
            "loss": of_critics.loss,
            "gradient_norm": jnp.linalg.norm(jnp.stack(norms)),
            "value_loss": of_value.loss,
            "policy_loss": of_policy.loss,
            "q_mean": jnp.mean(q_tm1),
            "weight_mean": jnp.mean(better),
        }
        return State(policy, critics, value, target_critics), metrics, jnp.mean(jnp.abs(error), axis=0)

    return LearnerCore(init, step, policy_params)

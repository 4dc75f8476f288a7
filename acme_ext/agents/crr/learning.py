"""CRR's learning."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from acme_ext.agents.crr import losses
from acme_ext.agents.crr.config import CRRConfig
from acme_ext.agents.iql import losses as iql_losses
from acme_ext.agents.iql.networks import Networks
from acme_ext.learning.core import LearnerCore, TrainState, policy_params, sgd_step
from acme_ext.networks.continuous import apply_twins, init_twins
from acme_ext.types import Array, Params, Sample, Transition, Tree


class State(NamedTuple):
    """The learning state, with everything that is needed to resume."""

    policy: TrainState
    critics: TrainState  # both critics; each array is [2, ...]
    target_policy: Params
    target_critics: Params
    key: Array  # random key for the next steps


def make_core(networks: Networks, config: CRRConfig, observation: Tree) -> LearnerCore[State]:
    """Returns CRR's learner core (Wang et al. 2020, algorithm 1); it uses IQL's networks except the value network."""
    optimizer = optax.adam(config.learning_rate)

    def init(key: Array) -> State:
        key, policy_key, critic_key = jax.random.split(key, 3)
        action = jnp.zeros((1, networks.action_size))
        critics = init_twins(networks.critic.init, critic_key, observation, action)
        policy = networks.policy.init(policy_key, observation)
        return State(
            policy=TrainState(policy, optimizer.init(policy)),
            critics=TrainState(critics, optimizer.init(critics)),
            target_policy=policy,
            target_critics=critics,
            key=key,
        )

    def q_values(params: Params, observation: Tree, action: Array) -> Array:
        return apply_twins(networks.critic.apply, params, observation, action)

    def sampled_values(policy: Params, critics: Params, observation: Tree, key: Array) -> Array:
        """Returns values `[S, B]` of S actions sampled from the policy, the minimum over both critics."""
        distribution = networks.policy.apply(policy, None, observation)
        noise = jax.random.normal(key, (config.num_samples, *distribution.mean.shape))
        actions = jnp.clip(distribution.sample(noise), -1.0, 1.0)
        return jax.vmap(lambda action: jnp.min(q_values(critics, observation, action), axis=0))(actions)

    def critic_loss(critics: Params, sample: Sample, target: Array) -> tuple[Array, tuple[Array, Array]]:
        return iql_losses.critic_loss(
            q_values(critics, sample.data.observation, sample.data.action), target, sample.weight
        )

    def policy_loss(policy: Params, sample: Sample, better: Array) -> tuple[Array, None]:
        distribution = networks.policy.apply(policy, None, sample.data.observation)
        return iql_losses.policy_loss(distribution, sample.data.action, sample.weight * better), None

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], Array]:
        batch: Transition = sample.data
        key, target_key, policy_key = jax.random.split(state.key, 3)
        v_t = jnp.mean(
            sampled_values(state.target_policy, state.target_critics, batch.next_observation, target_key), axis=0
        )
        target = config.reward_scale * batch.reward + batch.discount * v_t
        critics, of_critics = sgd_step(critic_loss, optimizer, state.critics, sample, target)
        q_tm1, error = of_critics.aux
        q_sampled = sampled_values(state.policy.params, state.critics.params, batch.observation, policy_key)
        advantage = losses.advantage(jnp.min(q_tm1, axis=0), q_sampled, config.baseline)
        better = losses.weights(advantage, config.weighting, config.temperature, config.max_weight)
        policy, of_policy = sgd_step(policy_loss, optimizer, state.policy, sample, better)
        target_policy = optax.incremental_update(policy.params, state.target_policy, config.target_rate)
        target_critics = optax.incremental_update(critics.params, state.target_critics, config.target_rate)
        metrics = {
            "loss": of_critics.loss,
            "gradient_norm": jnp.linalg.norm(jnp.stack([of_critics.gradient_norm, of_policy.gradient_norm])),
            "policy_loss": of_policy.loss,
            "q_mean": jnp.mean(q_tm1),
            "advantage_mean": jnp.mean(advantage),
            "weight_mean": jnp.mean(better),
        }
        return State(policy, critics, target_policy, target_critics, key), metrics, jnp.mean(jnp.abs(error), axis=0)

    return LearnerCore(init, step, policy_params)

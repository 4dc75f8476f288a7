"""SAC's learning."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from acme_ext.agents.sac import losses
from acme_ext.agents.sac.config import SACConfig
from acme_ext.agents.sac.networks import Networks
from acme_ext.learning.core import LearnerCore, Trained, sgd_step
from acme_ext.networks.continuous import apply_ensemble, init_ensemble
from acme_ext.ops.bounds import to_canonical
from acme_ext.specs import Bounds
from acme_ext.types import Array, Params, Sample, Transition, Tree

_CRITICS = 2


class State(NamedTuple):
    """Everything a resume needs."""

    policy: Trained
    critics: Trained  # both, each array [2, ...]
    target_critics: Params
    log_temperature: Trained  # []
    key: Array  # the random key of all steps to come


def make_core(networks: Networks, config: SACConfig, bounds: Bounds, observation: Tree) -> LearnerCore:
    """Returns SAC's learner core (Haarnoja et al. 2018b, algorithm 1).

    Args:
        networks: see there.
        config: the agent's.
        bounds: of the environment's action.
        observation: an example `[1, ...]`, for the parameters' shapes.
    """
    optimizer = optax.adam(config.learning_rate)
    target_entropy = config.target_entropy_per_value * bounds.size

    def init(key: Array) -> State:
        key, policy_key, critic_key = jax.random.split(key, 3)
        policy = networks.policy.init(policy_key, observation)
        critics = init_ensemble(networks.critic.init, critic_key, _CRITICS, observation, jnp.zeros((1, bounds.size)))
        log_temperature = jnp.log(jnp.float32(config.init_temperature))
        return State(
            policy=Trained(policy, optimizer.init(policy)),
            critics=Trained(critics, optimizer.init(critics)),
            target_critics=critics,
            log_temperature=Trained(log_temperature, optimizer.init(log_temperature)),
            key=key,
        )

    def q_values(params: Params, observation: Tree, action: Array) -> Array:
        return apply_ensemble(networks.critic.apply, params, observation, action)

    def act(params: Params, observation: Tree, key: Array) -> tuple[Array, Array]:
        policy = networks.policy.apply(params, None, observation)
        return policy.sample_with_log_prob(jax.random.normal(key, policy.mean.shape))

    def critic_loss(critics: Params, state: State, batch: Transition, key: Array) -> tuple[Array, Array]:
        q_tm1 = q_values(critics, batch.observation, batch.action)
        a_t, log_prob_t = act(state.policy.params, batch.next_observation, key)
        q_t = q_values(state.target_critics, batch.next_observation, a_t)
        temperature = jnp.exp(state.log_temperature.params)
        return losses.critic_loss(q_tm1, batch.reward, batch.discount, q_t, log_prob_t, temperature), q_tm1

    def policy_loss(
        policy: Params, critics: Params, temperature: Array, observation: Tree, key: Array
    ) -> tuple[Array, Array]:
        action, log_prob = act(policy, observation, key)
        return losses.policy_loss(q_values(critics, observation, action), log_prob, temperature), log_prob

    def temperature_loss(log_temperature: Array, log_prob: Array) -> tuple[Array, None]:
        return losses.temperature_loss(log_temperature, log_prob, target_entropy), None

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], None]:
        batch: Transition = sample.data
        batch = batch._replace(action=to_canonical(batch.action, bounds))
        key, critic_key, policy_key = jax.random.split(state.key, 3)
        # The order of algorithm 1: critics, then the policy by the new ones, then the temperature.
        critics, of_critics = sgd_step(critic_loss, optimizer, state.critics, state, batch, critic_key)
        temperature = jnp.exp(state.log_temperature.params)
        policy, of_policy = sgd_step(
            policy_loss, optimizer, state.policy, critics.params, temperature, batch.observation, policy_key
        )
        log_temperature, of_temperature = sgd_step(temperature_loss, optimizer, state.log_temperature, of_policy.aux)
        target_critics = optax.incremental_update(critics.params, state.target_critics, config.target_rate)
        norms = [descent.gradient_norm for descent in (of_critics, of_policy, of_temperature)]
        metrics = {
            "loss": of_critics.loss,
            "gradient_norm": jnp.linalg.norm(jnp.stack(norms)),
            "policy_loss": of_policy.loss,
            "q_mean": jnp.mean(of_critics.aux),
            "entropy": -jnp.mean(of_policy.aux),
            "temperature": temperature,
        }
        return State(policy, critics, target_critics, log_temperature, key), metrics, None

    def variables(state: State) -> dict[str, Any]:
        return {"policy": state.policy.params}

    return LearnerCore(init, step, variables)

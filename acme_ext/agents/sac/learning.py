"""SAC's learning."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from acme_ext.agents.sac import losses
from acme_ext.agents.sac.config import SACConfig
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, TrainState, policy_params, sgd_step
from acme_ext.networks.continuous import Networks, apply_twins, init_twins
from acme_ext.types import Array, Params, Sample, Transition, Tree


class State(NamedTuple):
    """The learning state, with everything that is needed to resume."""

    policy: TrainState
    critics: TrainState  # both critics; each array is [2, ...]
    target_critics: Params
    log_temperature: TrainState  # []
    key: Array  # random key for the next steps


QValues = Callable[[Tree, Array], Array]
"""`(observation [B, ...], action [B, A]) -> q [2, B]`."""

CriticLoss = Callable[[Params, State, Transition, Array, Array], tuple[Array, tuple[Array, Array]]]
"""`(critics, state, batch, weight [B], key) -> (loss [], (q_tm1 [2, B], error [2, B]))`."""

PolicyLoss = Callable[[Params, Params, Array, Tree, Array], tuple[Array, Array]]
"""`(policy, critics, temperature [], observation [B, ...], key) -> (loss [], log_prob [B])`, where log_prob is for
sampled actions, or an expectation over actions.
"""

Penalty = Callable[[QValues, Params, Transition, Array, Array], Array]
"""`(q_values, policy params, batch, q_tm1 [2, B], key) -> penalties [B]`; their weighted mean is added to the critics'
loss."""


def make_core(
    networks: Networks,
    config: SACConfig,
    observation: Tree,
    *,
    penalty: Penalty | None = None,
    entropy_in_target: bool = True,
) -> LearnerCore[State]:
    """Returns SAC's learner core (Haarnoja et al. 2018b, algorithm 1).

    Args:
        networks: see `networks.make_networks`.
        config: the agent's config.
        observation: an example `[1, ...]`, for the parameters' shapes.
        penalty: an extra term of the critics' loss, see `Penalty`; None for SAC.
        entropy_in_target: whether the critics' targets include the policy's entropy.
    """

    def q_values(params: Params, observation: Tree, action: Array) -> Array:
        return apply_twins(networks.critic.apply, params, observation, action)

    def act(params: Params, observation: Tree, key: Array) -> tuple[Array, Array]:
        policy = networks.policy.apply(params, None, observation)
        return policy.sample_with_log_prob(jax.random.normal(key, policy.mean.shape))

    def critic_loss(
        critics: Params, state: State, batch: Transition, weight: Array, key: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        q_tm1 = q_values(critics, batch.observation, batch.action)
        a_t, log_prob_t = act(state.policy.params, batch.next_observation, key)
        q_t = q_values(state.target_critics, batch.next_observation, a_t)
        temperature = jnp.exp(state.log_temperature.params) * entropy_in_target
        error = losses.td_error(q_tm1, batch.reward, batch.discount, q_t, log_prob_t, temperature)
        loss = losses.critic_loss(error, weight)
        if penalty is not None:
            of_critics = functools.partial(q_values, critics)
            penalties = penalty(of_critics, state.policy.params, batch, q_tm1, jax.random.fold_in(key, 1))
            loss += jnp.mean(weight * penalties)
        return loss, (q_tm1, error)

    def policy_loss(
        policy: Params, critics: Params, temperature: Array, observation: Tree, key: Array
    ) -> tuple[Array, Array]:
        action, log_prob = act(policy, observation, key)
        return losses.policy_loss(q_values(critics, observation, action), log_prob, temperature), log_prob

    return core_of_losses(
        critic_loss,
        policy_loss,
        lambda observation: jnp.float32(config.target_entropy_per_value * networks.action_size),
        lambda key: networks.policy.init(key, observation),
        lambda key: networks.critic.init(key, observation, jnp.zeros((1, networks.action_size))),
        config,
    )


def core_of_losses(
    critic_loss: CriticLoss,
    policy_loss: PolicyLoss,
    target_entropy: Callable[[Tree], Array],
    init_policy: Callable[[Array], Params],
    init_critic: Callable[[Array], Params],
    config: Any,
) -> LearnerCore[State]:
    """Returns the core of an agent that trains twin critics, a policy and a temperature, in this order.

    Args:
        critic_loss: see `CriticLoss`.
        policy_loss: see `PolicyLoss`.
        target_entropy: `observation [B, ...] -> [B] or []`, the target entropy in nats.
        init_policy: `key -> params`.
        init_critic: `key -> params` of one critic.
        config: the agent's, with SAC's `learning_rate`, its decay, `init_temperature` and `target_rate`.
    """
    optimizer = optax.adam(optimizers.decayed(config.learning_rate, config.learning_rate_decay_steps))

    def init(key: Array) -> State:
        key, policy_key, critic_key = jax.random.split(key, 3)
        policy = init_policy(policy_key)
        critics = init_twins(init_critic, critic_key)
        log_temperature = jnp.log(jnp.float32(config.init_temperature))
        return State(
            policy=TrainState(policy, optimizer.init(policy)),
            critics=TrainState(critics, optimizer.init(critics)),
            target_critics=critics,
            log_temperature=TrainState(log_temperature, optimizer.init(log_temperature)),
            key=key,
        )

    def temperature_loss(log_temperature: Array, log_prob: Array, observation: Tree) -> tuple[Array, None]:
        return losses.temperature_loss(log_temperature, log_prob, target_entropy(observation)), None

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], Array]:
        batch: Transition = sample.data
        key, critic_key, policy_key = jax.random.split(state.key, 3)
        # The order of algorithm 1: the critics, then the policy with the new critics, then the temperature.
        critics, of_critics = sgd_step(critic_loss, optimizer, state.critics, state, batch, sample.weight, critic_key)
        temperature = jnp.exp(state.log_temperature.params)
        policy, of_policy = sgd_step(
            policy_loss, optimizer, state.policy, critics.params, temperature, batch.observation, policy_key
        )
        log_temperature, of_temperature = sgd_step(
            temperature_loss, optimizer, state.log_temperature, of_policy.aux, batch.observation
        )
        target_critics = optax.incremental_update(critics.params, state.target_critics, config.target_rate)
        norms = [info.gradient_norm for info in (of_critics, of_policy, of_temperature)]
        q_tm1, error = of_critics.aux
        metrics = {
            "loss": of_critics.loss,
            "gradient_norm": jnp.linalg.norm(jnp.stack(norms)),
            "policy_loss": of_policy.loss,
            "q_mean": jnp.mean(q_tm1),
            "entropy": -jnp.mean(of_policy.aux),
            "temperature": temperature,
        }
        new_state = State(policy, critics, target_critics, log_temperature, key)
        return new_state, metrics, jnp.mean(jnp.abs(error), axis=0)

    return LearnerCore(init, step, policy_params)

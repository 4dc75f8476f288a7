"""Discrete SAC's learning: like SAC's, but with expectations over all actions instead of samples."""

import jax.numpy as jnp

from acme_ext.agents.discrete_sac.config import DiscreteSACConfig
from acme_ext.agents.discrete_sac.losses import Expected, expected, target_entropy
from acme_ext.agents.discrete_sac.networks import Networks
from acme_ext.agents.sac import learning as sac
from acme_ext.agents.sac import losses
from acme_ext.learning.core import LearnerCore
from acme_ext.networks.continuous import apply_twins
from acme_ext.ops import masking
from acme_ext.ops.value import take_action
from acme_ext.types import Array, Params, Transition, Tree


def make_core(networks: Networks, config: DiscreteSACConfig, observation: Tree) -> LearnerCore[sac.State]:
    """Returns discrete SAC's learner core (Christodoulou 2019, algorithm 1)."""

    def q_values(params: Params, observation: Tree) -> Array:
        return apply_twins(networks.critic.apply, params, observation)

    def of_policy(policy: Params, critics: Params, observation: Tree) -> Expected:
        logits = networks.policy.apply(policy, None, observation)
        logits = masking.masked(logits, masking.legal_actions(observation))
        return expected(logits, q_values(critics, observation))

    def critic_loss(
        critics: Params, state: sac.State, batch: Transition, weight: Array, key: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        del key
        q_tm1 = take_action(q_values(critics, batch.observation), jnp.asarray(batch.action)[None])
        following = of_policy(state.policy.params, state.target_critics, batch.next_observation)
        temperature = jnp.exp(state.log_temperature.params)
        error = losses.td_error(q_tm1, batch.reward, batch.discount, following.q, following.log_prob, temperature)
        return losses.critic_loss(error, weight), (q_tm1, error)

    def policy_loss(
        policy: Params, critics: Params, temperature: Array, observation: Tree, key: Array
    ) -> tuple[Array, Array]:
        del key
        q, log_prob = of_policy(policy, critics, observation)
        return losses.policy_loss(q, log_prob, temperature), log_prob

    def entropy_to_keep(observation: Tree) -> Array:
        legal = masking.legal_actions(observation)
        return target_entropy(config.target_entropy_share, networks.num_actions, legal)

    return sac.core_of_losses(
        critic_loss,
        policy_loss,
        entropy_to_keep,
        lambda key: networks.policy.init(key, observation),
        lambda key: networks.critic.init(key, observation),
        config,
    )

"""Rainbow's learning: the distributional loss in DQN's core."""

import haiku as hk
import jax
import jax.numpy as jnp
from jax import lax

from acme_ext.agents.dqn import learning as dqn
from acme_ext.agents.rainbow import losses, networks
from acme_ext.agents.rainbow.config import RainbowConfig
from acme_ext.learning.core import LearnerCore, LossOutput, State
from acme_ext.ops import masking, value
from acme_ext.types import Array, Params, Transition, Tree


def make_core(network: hk.Transformed, config: RainbowConfig, observation: Tree) -> LearnerCore[State]:
    """Returns Rainbow's learner core; without a distribution it is DQN's."""
    if config.distribution == "none":
        return dqn.make_core(networks.q_network(network), config, observation)

    def loss(
        params: Params, target_params: Params, batch: Transition, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        # Each evaluation uses independent noise (Fortunato et al. 2018, eq. 17) and fractions.
        key_tm1, key_t, key_selector = jax.random.split(key, 3)
        tm1 = network.apply(params, key_tm1, batch.observation)
        t = network.apply(target_params, key_t, batch.next_observation)
        q_t_selector = network.apply(params, key_selector, batch.next_observation).q if config.double else t.q
        q_t_selector = masking.masked(q_t_selector, masking.legal_actions(batch.next_observation))
        target = value.double_q_target(batch.reward, batch.discount, t.q, q_t_selector)
        error = jnp.abs(target - value.take_action(tm1.q, batch.action))
        metrics = {"q_mean": jnp.mean(tm1.q), "td_error_abs": jnp.mean(error)}
        if config.distribution == "categorical":
            atoms = networks.support(config)
            probs = losses.categorical_double_q_target(batch.reward, batch.discount, t.values, q_t_selector, atoms)
            each = priority = losses.categorical_q_loss(tm1.values, batch.action, probs)
            # How much the projection changes the targets' means: not zero if the support is too narrow.
            metrics["support_error"] = jnp.mean(jnp.abs(target - probs @ atoms))
        else:
            each = losses.quantile_double_q_loss(
                tm1.values,
                tm1.taus,
                batch.action,
                batch.reward,
                batch.discount,
                t.values,
                q_t_selector,
                config.quantile_kappa,
            )
            priority = error  # the loss itself is not zero for a perfect prediction
        return jnp.mean(weight * each), LossOutput(metrics, lax.stop_gradient(priority))

    return dqn.core_of_loss(loss, lambda key: network.init(key, observation), config)

"""Rainbow's learning: the distributional loss in DQN's core."""

from collections.abc import Callable
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
from jax import lax

from acme_ext.agents.dqn import learning as dqn
from acme_ext.agents.rainbow import losses, networks
from acme_ext.agents.rainbow.config import RainbowConfig
from acme_ext.agents.rainbow.networks import Prediction
from acme_ext.learning.core import LearnerCore, LossOutput, State
from acme_ext.ops import masking, value
from acme_ext.types import Array, Params, Transition, Tree


class Distribution(NamedTuple):
    """How a kind of distribution is learned."""

    target: Callable[[Array, Array, Prediction, Array], Array]
    """`(r_t [B], discount_t [B], prediction_t, q_t_selector [B, A]) -> target [B, N]`."""
    loss: Callable[[Prediction, Array, Array], Array]
    """`(prediction_tm1, a_tm1 [B], target) -> [B]`: each transition's loss."""
    priority: Callable[[Array, Array], Array]
    """`(loss [B], |TD error| [B]) -> [B]`."""
    metrics: Callable[[Array, Array], dict[str, Array]]
    """`(target, the target's mean before it is projected [B]) -> metrics`."""


def categorical(config: RainbowConfig) -> Distribution:
    """Returns how a categorical distribution is learned (Bellemare et al. 2017)."""
    atoms = networks.support(config)
    return Distribution(
        target=lambda r_t, discount_t, t, q_t_selector: losses.categorical_double_q_target(
            r_t, discount_t, t.values, q_t_selector, atoms
        ),
        loss=lambda tm1, a_tm1, target: losses.categorical_q_loss(tm1.values, a_tm1, target),
        priority=lambda loss, error: loss,
        # How much the projection changes the targets' means: not zero if the support is too narrow.
        metrics=lambda target, mean: {"support_error": jnp.mean(jnp.abs(mean - target @ atoms))},
    )


def quantiles(config: RainbowConfig) -> Distribution:
    """Returns how quantiles are learned, at fixed or sampled fractions (Dabney et al. 2018a, 2018b)."""
    return Distribution(
        target=lambda r_t, discount_t, t, q_t_selector: losses.quantile_double_q_target(
            r_t, discount_t, t.values, q_t_selector
        ),
        loss=lambda tm1, a_tm1, target: losses.quantile_q_loss(
            tm1.values, tm1.taus, a_tm1, target, config.quantile_kappa
        ),
        priority=lambda loss, error: error,  # the loss itself is not zero for a perfect prediction
        metrics=lambda target, mean: {},
    )


def make_core(network: hk.Transformed, config: RainbowConfig, observation: Tree) -> LearnerCore[State]:
    """Returns Rainbow's learner core; without a distribution it is DQN's."""
    if config.distribution == "none":
        return dqn.make_core(networks.q_network(network), config, observation)
    distribution = (categorical if config.distribution == "categorical" else quantiles)(config)

    def loss(
        params: Params, target_params: Params, batch: Transition, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        # Each evaluation uses independent noise (Fortunato et al. 2018, eq. 17) and fractions.
        key_tm1, key_t, key_selector = jax.random.split(key, 3)
        tm1 = network.apply(params, key_tm1, batch.observation)
        t = network.apply(target_params, key_t, batch.next_observation)
        q_t_selector = network.apply(params, key_selector, batch.next_observation).q if config.double else t.q
        q_t_selector = masking.masked(q_t_selector, masking.legal_actions(batch.next_observation))
        target = distribution.target(batch.reward, batch.discount, t, q_t_selector)
        each = distribution.loss(tm1, batch.action, target)
        mean = value.double_q_target(batch.reward, batch.discount, t.q, q_t_selector)
        error = jnp.abs(mean - value.take_action(tm1.q, batch.action))
        metrics = {"q_mean": jnp.mean(tm1.q), "td_error_abs": jnp.mean(error), **distribution.metrics(target, mean)}
        return jnp.mean(weight * each), LossOutput(metrics, lax.stop_gradient(distribution.priority(each, error)))

    return dqn.core_of_loss(loss, lambda key: network.init(key, observation), config)

"""Bootstrapped DQN's learning: every head has DQN's loss, with its own targets, on its own subset of the steps."""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.agents.bdqn.acting import BDQNParams, head_values
from acme_ext.agents.bdqn.config import BDQNConfig
from acme_ext.agents.dqn import learning as dqn
from acme_ext.agents.dqn import losses
from acme_ext.learning.core import LearnerCore, LossOutput, State
from acme_ext.ops import masking
from acme_ext.types import Array, Params, Sample, Transition, Tree


class BDQNState(NamedTuple):
    """The learning state."""

    core: State
    prior: Params  # parameters of the prior network, sampled once


def make_core(network: hk.Transformed, config: BDQNConfig, observation: Tree) -> LearnerCore[BDQNState]:
    """Returns the learner core of bootstrapped DQN with priors.

    loss = mean_i w_i * sum_k mask_ik * loss(delta_ik)   (Osband et al. 2016, eq. 10; Osband et al. 2018, eq. 8)

    The error of an item i is the mean |delta_ik| over the heads k that learn from it.
    """
    of_heads = jax.vmap(losses.td_error, (1, None, None, None, 1, 1), 1)

    def loss(
        params: Params, target_params: Params, data: tuple[Transition, Params], weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        del key
        batch, prior = data

        def values(params: Params, observation: Tree) -> Array:
            return head_values(network, BDQNParams(params, prior), observation, config.prior_scale)

        q_tm1 = values(params, batch.observation)
        q_t_value = values(target_params, batch.next_observation)
        q_t_selector = values(params, batch.next_observation) if config.double else q_t_value
        legal = masking.legal_actions(batch.next_observation)
        q_t_selector = masking.masked(q_t_selector, None if legal is None else legal[:, None])
        error = of_heads(q_tm1, batch.action, batch.reward, batch.discount, q_t_value, q_t_selector)
        mask = batch.extras.mask.astype(error.dtype)
        of_item = jnp.sum(mask * jnp.abs(error), axis=1) / jnp.maximum(jnp.sum(mask, axis=1), 1)
        metrics = {
            "q_mean": jnp.mean(q_tm1),
            "q_spread": jnp.mean(jnp.std(q_tm1, axis=1)),
            "td_error_abs": jnp.mean(of_item),
        }
        mean = losses.q_loss(error, weight[:, None] * mask, config.huber_delta)
        return config.num_heads * mean, LossOutput(metrics, of_item)

    core = dqn.core_of_loss(loss, lambda key: network.init(key, observation), config)

    def init(key: Array) -> BDQNState:
        key, prior_key = jax.random.split(key)
        return BDQNState(core.init(key), network.init(prior_key, observation))

    def step(state: BDQNState, sample: Sample) -> tuple[BDQNState, dict[str, Array], Array | None]:
        inner, metrics, errors = core.step(state.core, sample._replace(data=(sample.data, state.prior)))
        return BDQNState(inner, state.prior), metrics, errors

    def variables(state: BDQNState) -> dict[str, Params]:
        return {"policy": BDQNParams(state.core.params, state.prior)}

    return LearnerCore(init, step, variables)

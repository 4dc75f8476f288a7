"""DQfD's learning: DQN's 1-step and n-step losses, and a margin loss on demonstrations."""

import dataclasses
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.agents.dqfd import losses
from acme_ext.agents.dqfd.config import DQfDConfig
from acme_ext.agents.dqn import learning as dqn
from acme_ext.learning.core import LearnerCore, LossOutput, State
from acme_ext.ops import masking
from acme_ext.types import Array, Params, Sample, Transition, Tree


def make_core(network: hk.Transformed, config: DQfDConfig, observation: Tree) -> LearnerCore[State]:
    """Returns DQfD's learner core (Hester et al. 2018, eq. 3), for n-step transitions that also have `one_step`.

    loss = 1-step loss + n_step_coef * n-step loss + margin_coef * margin loss + l2_coef * sum of squared parameters

    Priorities are computed from the 1-step errors. The arguments are the same as for DQN.
    """
    td_loss = dqn.loss_of(network, config)

    def loss(
        params: Params, target_params: Params, data: tuple[Transition, Array], weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        batch, is_demo = data
        first = batch._replace(**batch.one_step._asdict())
        of_one, output = td_loss(params, target_params, first, weight, key)
        of_n, _ = td_loss(params, target_params, batch, weight, key)
        q = network.apply(params, key, batch.observation)
        margins = losses.margin_loss(q, batch.action, config.margin, masking.legal_actions(batch.observation))
        margin = jnp.mean(weight * is_demo * margins)
        squares = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params))
        total = of_one + config.n_step_coef * of_n + config.margin_coef * margin + config.l2_coef * squares
        return total, output._replace(metrics={**output.metrics, "margin_loss": margin})

    core = dqn.core_of_loss(loss, lambda key: network.init(key, observation), config)

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], Any]:
        return core.step(state, sample._replace(data=(sample.data, sample.is_demo)))

    return dataclasses.replace(core, step=step)

"""IMPALA's learning: V-trace in the shared core of agents with one loss."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from acme_ext.acting.stochastic import among_legal
from acme_ext.agents.impala import losses
from acme_ext.agents.impala.config import IMPALAConfig
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, LossOutput, State, single_loss_core
from acme_ext.learning.on_policy import VersionedParams, lag
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.types import Array, Params, Sample, Sequence, Tree


def make_core(network: RecurrentNetwork, config: IMPALAConfig, observation: Tree) -> LearnerCore[State]:
    """Returns IMPALA's learner core; a step takes a batch of unrolls.

    Args:
        network: see `networks.make_network`.
        config: the agent's.
        observation: an example `[1, ...]`, for the parameters' shapes.
    """

    def loss(
        params: Params, target_params: Params, batch: Sequence, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        del target_params, weight, key  # there is no target, no priority and no noise
        reward = losses.clip_rewards(batch.reward, config.reward_clipping)
        output = network.outputs(params, batch)
        costs = losses.impala_costs(
            jax.tree.map(lambda x: x[:-1], among_legal(output.policy, batch.observation)),
            output.value,
            batch.action,
            reward[1:],
            batch.discount,
            batch.extras.log_prob,
            batch.mask,
            max_rho=config.max_rho,
            max_c=config.max_c,
        )
        steps = jnp.maximum(jnp.sum(batch.mask), 1.0)
        metrics = {
            "policy_loss": costs.policy_gradient / steps,
            "value_loss": costs.value / steps,
            "entropy": costs.entropy / steps,
        }
        total = costs.policy_gradient + config.value_coef * costs.value - config.entropy_coef * costs.entropy
        return total, LossOutput(metrics)

    learning_rate = optimizers.decayed(config.learning_rate, config.learning_rate_decay_steps)
    optimizer = optax.rmsprop(learning_rate, config.rmsprop_decay, config.rmsprop_epsilon)
    optimizer = optimizers.bounded(optimizer, config.max_gradient_norm)
    core = single_loss_core(loss, lambda key: network.init(key, observation), optimizer, variables=variables)

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], None]:
        after, metrics, _ = core.step(state, sample)
        return after, {**metrics, **lag(state.steps, sample.data)}, None

    return dataclasses.replace(core, step=step)


def variables(state: State) -> dict[str, Any]:
    """Returns what IMPALA's actors may ask for."""
    return {"policy": VersionedParams(state.params, state.steps)}

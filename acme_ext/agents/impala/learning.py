"""IMPALA's learning: gradient steps on the V-trace loss."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.acting.stochastic import VersionedParams, among_legal
from acme_ext.agents.impala import losses
from acme_ext.agents.impala.config import IMPALAConfig
from acme_ext.learning import normalize, optimizers
from acme_ext.learning.core import LearnerCore, TrainState, sgd_step
from acme_ext.learning.normalize import Moments
from acme_ext.learning.on_policy import lag
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.types import Array, Params, Sample, Sequence, Tree


class State(NamedTuple):
    """The learning state, with everything that is needed to resume."""

    trained: TrainState
    values: Moments  # [] moments of the value targets
    steps: Array  # [] int32, learner steps taken


def make_core(network: RecurrentNetwork, config: IMPALAConfig, observation: Tree) -> LearnerCore[State]:
    """Returns IMPALA's learner core; a step takes a batch of unrolls."""
    learning_rate = optimizers.decayed(config.learning_rate, config.learning_rate_decay_steps)
    optimizer = optimizers.rmsprop(learning_rate, config.rmsprop_decay, config.rmsprop_epsilon)
    optimizer = optimizers.bounded(optimizer, config.max_gradient_norm)

    def init(key: Array) -> State:
        params = network.init(key, observation)
        return State(
            trained=TrainState(params, optimizer.init(params)),
            values=normalize.init(jnp.zeros(()), variance=0.0),
            steps=jnp.zeros((), jnp.int32),
        )

    def loss(
        params: Params, batch: Sequence, values: Moments | None
    ) -> tuple[Array, tuple[dict[str, Array], Moments | None]]:
        reward = losses.clip_rewards(batch.reward, config.reward_clipping)
        output = network.outputs(params, batch)
        costs, values = losses.impala_costs(
            jax.tree.map(lambda x: x[:-1], among_legal(output.policy, batch.observation)),
            output.value,
            batch.action,
            reward[1:],
            batch.discount,
            batch.extras.log_prob,
            batch.mask,
            values,
            max_rho=config.max_rho,
            max_c=config.max_c,
            horizon=config.value_horizon,
            normalize_advantages=config.normalize_advantages,
            popart=config.popart,
        )
        steps = jnp.maximum(jnp.sum(batch.mask), 1.0)
        metrics = {
            "policy_loss": costs.policy_gradient / steps,
            "value_loss": costs.value / steps,
            "entropy": costs.entropy / steps,
        }
        total = costs.policy_gradient + config.value_coef * costs.value - config.entropy_coef * costs.entropy
        return total, (metrics, values)

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], None]:
        trained, info = sgd_step(
            loss, optimizer, state.trained, sample.data, state.values if config.normalize_values else None
        )
        metrics, values = info.aux
        if config.popart:
            trained = trained._replace(params=normalize.corrected(trained.params, state.values, values))
        metrics = {
            "loss": info.loss,
            "gradient_norm": info.gradient_norm,
            **metrics,
            **lag(state.steps, sample.data),
        }
        return State(trained, values or state.values, state.steps + 1), metrics, None

    def variables(state: State) -> dict[str, Any]:
        return {"policy": VersionedParams(state.trained.params, state.steps)}

    return LearnerCore(init, step, variables)

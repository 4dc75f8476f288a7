"""Behavioural cloning's learning."""

import jax.numpy as jnp
from jax import lax

from acme_ext.agents.bc import losses
from acme_ext.agents.bc.config import BCConfig
from acme_ext.agents.bc.networks import Network
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, LossOutput, State, single_loss_core
from acme_ext.types import Array, Params, Transition, Tree


def make_core(network: Network, config: BCConfig, observation: Tree) -> LearnerCore[State]:
    """Returns the learner core; `observation` is an example `[1, ...]`, for the parameters' shapes."""

    def loss(
        params: Params, target_params: Params, batch: Transition, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        del target_params, key
        out = network.outputs(params, batch.observation)
        each = losses.imitation_loss(out, batch.action, discrete=network.discrete)
        return jnp.mean(weight * each), LossOutput({}, lax.stop_gradient(each))

    optimizer = optimizers.adam(config.learning_rate, None)
    return single_loss_core(loss, lambda key: network.apply.init(key, observation), optimizer)

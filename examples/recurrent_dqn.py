"""Deep recurrent Q-learning (Hausknecht and Stone 2015): DQN's loss and exploration on R2D2's sequences."""

import dataclasses

import jax
import jax.numpy as jnp

from acme_ext import specs
from acme_ext.agents.dqn import acting, config, learning, losses
from acme_ext.agents.r2d2 import acting as r2d2
from acme_ext.agents.r2d2 import networks
from acme_ext.builders import DQN
from acme_ext.learning.core import LossOutput
from acme_ext.replay import SequenceConfig


@dataclasses.dataclass(frozen=True)
class Config(config.DQNConfig):
    core_size: int = 64
    batch_size: int = 32
    replay: SequenceConfig = SequenceConfig(burn_in=0)  # the loss would have to leave the first `burn_in` steps out


@dataclasses.dataclass(frozen=True)
class RecurrentDQN(DQN):
    name = "recurrent_dqn"
    config: Config = Config()
    network: object = networks.make_network

    def make_policy(self, spec, network, *, evaluation=False):
        return r2d2.policy_of(network, acting.epsilon_schedule(self.config, evaluation=evaluation))

    def make_core(self, spec, network):
        def loss(params, target_params, batch, weight, key):
            q, target = (network.outputs(each, batch) for each in (params, target_params))
            td_error = jax.vmap(losses.td_error)  # vectorised over time
            error = td_error(q[:-1], batch.action, batch.reward[1:], batch.discount, target[1:], q[1:]) * batch.mask
            return losses.q_loss(error, weight, self.config.huber_delta), LossOutput({}, jnp.abs(error).max(axis=0))

        return learning.core_of_loss(
            loss, lambda key: network.init(key, specs.zeros(spec.observations, 1)), self.config
        )

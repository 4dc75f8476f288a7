"""n-step expected SARSA (van Seijen et al. 2009): a custom agent, made of a loss, a config and existing parts."""

import dataclasses

import haiku as hk
import jax.numpy as jnp
import optax

from acme_ext import specs
from acme_ext.acting.exploration import epsilon_greedy
from acme_ext.acting.policy import Policy
from acme_ext.builders import Builder
from acme_ext.config import AgentConfig
from acme_ext.learning.core import LossOutput, TargetUpdate, single_loss_core
from acme_ext.replay import TransitionConfig


@dataclasses.dataclass(frozen=True)
class Config(AgentConfig):
    epsilon: float = 0.1  # probability of a random action, in acting and in the target
    learning_rate: float = 1e-3  # Adam
    discount: float = 0.9  # of one step; near 1 the values of a good and a bad move hardly differ
    batch_size: int = 64
    replay: TransitionConfig = TransitionConfig(n_step=3, samples_per_insert=16)


def td_error(q_tm1, a_tm1, r_t, discount_t, q_t, epsilon):
    """R_t + gamma_t * sum_a pi(a) q_t[a] - q_tm1[a_tm1], `[B]`, with pi epsilon-greedy in q_t."""
    expected = epsilon * q_t.mean(axis=-1) + (1 - epsilon) * q_t.max(axis=-1)
    return r_t + discount_t * expected - q_tm1[jnp.arange(len(a_tm1)), a_tm1]


@dataclasses.dataclass(frozen=True)
class ExpectedSarsa(Builder):
    name = "expected_sarsa"
    config: Config = Config()

    def make_networks(self, spec):
        num_actions = specs.num_actions(spec, self.name)
        return hk.transform(lambda x: hk.nets.MLP((64, 64, num_actions))(hk.Flatten()(x)))

    def make_policy(self, spec, networks, *, evaluation=False):
        epsilon = 0.0 if evaluation else self.config.epsilon

        def apply(params, context, observation, state):
            return epsilon_greedy(context.key, networks.apply(params, None, observation), epsilon), state, ()

        return Policy(apply)

    def make_core(self, spec, networks):
        def loss(params, target_params, batch, weight, key):
            q_tm1 = networks.apply(params, key, batch.observation)
            q_t = networks.apply(target_params, key, batch.next_observation)
            error = td_error(q_tm1, batch.action, batch.reward, batch.discount, q_t, self.config.epsilon)
            return jnp.mean(weight * error**2), LossOutput({"q_mean": q_tm1.mean()}, jnp.abs(error))

        observation, adam = specs.zeros(spec.observations, 1), optax.adam(self.config.learning_rate)
        return single_loss_core(
            loss, lambda key: networks.init(key, observation), adam, target_update=TargetUpdate(100)
        )

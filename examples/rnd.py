"""Random network distillation (Burda et al. 2018) with PPO: a single value head for the sum of reward and bonus."""

import dataclasses
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from acme_ext import specs
from acme_ext.agents.ppo.config import PPOConfig
from acme_ext.builders import PPO
from acme_ext.learning import normalize
from acme_ext.learning.core import LearnerCore, TrainState, sgd_step
from acme_ext.networks.torsos import flatten_observation
from acme_ext.utils.trees import merge_axes


@dataclasses.dataclass(frozen=True)
class Config(PPOConfig):
    bonus_coef: float = 0.01  # weight of the bonus relative to the reward
    bonus_learning_rate: float = 1e-3  # Adam


class State(NamedTuple):
    ppo: Any
    predictor: TrainState
    target: Any  # the random network's parameters
    errors: normalize.Moments  # [] moments of the prediction errors


@dataclasses.dataclass(frozen=True)
class RND(PPO):
    name = "ppo_rnd"
    config: Config = Config()

    def make_core(self, spec, networks):
        ppo, optimizer = super().make_core(spec, networks), optax.adam(self.config.bonus_learning_rate)
        network = hk.without_apply_rng(hk.transform(lambda o: hk.nets.MLP((64, 32))(flatten_observation(o))))

        def init(key):
            keys, observation = jax.random.split(key, 3), specs.zeros(spec.observations, 1)
            predictor, target = (network.init(key, observation) for key in keys[:2])
            moments = normalize.init(jnp.zeros(()))
            return State(ppo.init(keys[2]), TrainState(predictor, optimizer.init(predictor)), target, moments)

        def loss(predictor, target, observation):
            error = jnp.sum((network.apply(predictor, observation) - network.apply(target, observation)) ** 2, axis=-1)
            return jnp.mean(error), error

        def step(state, sample):
            batch = sample.data
            seen = merge_axes(batch.observation)
            predictor, info = sgd_step(loss, optimizer, state.predictor, state.target, seen)
            errors = normalize.update(state.errors, info.aux, jnp.ones_like(info.aux))
            bonus = self.config.bonus_coef * info.aux / jnp.sqrt(errors.variance + 1e-8)
            reward = batch.reward + bonus.reshape(batch.reward.shape) * ~batch.first
            learned, metrics, _ = ppo.step(state.ppo, sample._replace(data=batch._replace(reward=reward)))
            return State(learned, predictor, state.target, errors), {**metrics, "bonus": jnp.mean(bonus)}, None

        return LearnerCore(init, step, lambda state: ppo.variables(state.ppo))

"""A small environment and a small agent, about which everything can be computed by hand."""

import dataclasses
from typing import Any, ClassVar, Literal

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from acme_ext.acting.policy import Policy
from acme_ext.builders.base import Builder
from acme_ext.config.agent import AgentConfig
from acme_ext.learning.core import LearnerCore, LossOutput, State, single_loss_core
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.transitions import TransitionReplay


class Walk(dm_env.Environment):
    """Episodes of `length` steps, whatever is done; rewards are the seed's, and three times as good for action 1.

    The observation is the position, one-hot in `length + 1` places.
    """

    def __init__(self, seed: int, length: int = 10, *, truncates: bool = False):
        self.rng = np.random.default_rng(seed)
        self.seed, self.length, self.truncates = seed, length, truncates
        self.position = -1
        self.taken = 0  # steps in all episodes

    def reset(self) -> dm_env.TimeStep:
        self.position = 0
        return dm_env.restart(self.observe())

    def step(self, action: Any) -> dm_env.TimeStep:
        if self.position in (-1, self.length):
            return self.reset()
        self.position += 1
        self.taken += 1
        reward = self.reward(int(action))
        if self.position < self.length:
            return dm_env.transition(reward, self.observe())
        end = dm_env.truncation if self.truncates else dm_env.termination
        return end(reward, self.observe())

    def reward(self, action: int) -> float:
        return self.rng.random() * (0.5 + action)

    def observe(self) -> np.ndarray:
        return np.eye(self.length + 1, dtype=np.float32)[self.position]

    def observation_spec(self) -> specs.Array:
        return specs.BoundedArray((self.length + 1,), np.float32, 0, 1)

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2)

    def close(self) -> None:
        pass


def make_walk(seed: int, evaluation: bool) -> dm_env.Environment:
    """Makes the default Walk, as an environment factory."""
    del evaluation
    return Walk(seed)


@dataclasses.dataclass(frozen=True)
class ToyConfig(AgentConfig):
    """A replay to try a limit on, and a learning that can be told to fail."""

    order: Literal["uniform", "prioritized", "queue"] = "uniform"
    batch_size: int = 4
    samples_per_insert: float | None = 1.0
    min_size: int = 4
    tolerance: float | None = None
    max_size: int = 1_000
    sgd_steps_per_call: int = 1
    burst: int = 1
    learning_rate: float = 0.1
    nan_at: int | None = None  # learner step whose loss is NaN


@dataclasses.dataclass(frozen=True)
class Toy(Builder):
    """REINFORCE of one-step rewards with a linear softmax policy."""

    name: ClassVar[str] = "toy"

    config: ToyConfig = ToyConfig()

    def make_networks(self, spec: Any) -> None:
        return None

    def make_replay(self, spec: Any, networks: None) -> TransitionReplay:
        c = self.config
        return TransitionReplay(
            spec,
            batch_size=c.batch_size,
            max_size=c.max_size,
            limit=None if c.order == "queue" else RateLimit(c.samples_per_insert, c.min_size, c.tolerance),
            order=c.order,
            priority=first_priority if c.order == "prioritized" else None,
            priority_offset=0.0,
            importance_exponent=0.0,
            importance_exponent_end=0.0,
            burst=c.burst,
        )

    def make_policy(self, spec: Any, networks: None, *, evaluation: bool = False) -> Policy:
        del spec, evaluation  # samples in evaluation too, so that an evaluation depends on its random keys

        def apply(params, context, observation, state):
            return jax.vmap(jax.random.categorical)(context.key, observation @ params["w"]), state, ()

        return Policy(apply)

    def make_core(self, spec: Any, networks: None) -> LearnerCore:
        import optax

        places = spec.observations.shape[0]

        def loss(params, target_params, data, weight, key):
            log_p = jax.nn.log_softmax(data.observation @ params["w"])
            log_p = jnp.take_along_axis(log_p, data.action[:, None], axis=1)[:, 0]
            # The priority tells the item's place, so that a test can see whose priority came back.
            priority = 2.0 + jnp.argmax(data.observation, axis=1) if self.config.order == "prioritized" else None
            return -jnp.mean(weight * log_p * data.reward), LossOutput({}, priority)

        core = single_loss_core(loss, lambda key: {"w": jnp.zeros((places, 2))}, optax.sgd(self.config.learning_rate))
        if self.config.nan_at is None:
            return core

        def step(state: State, sample: Any):
            state, metrics, priority = core.step(state, sample)
            poison = jnp.where(state.steps == self.config.nan_at, jnp.nan, 1.0)
            params = jax.tree.map(lambda x: x * poison, state.params)
            return state._replace(params=params), {**metrics, "loss": metrics["loss"] * poison}, priority

        return dataclasses.replace(core, step=step)


def first_priority(reward: np.ndarray, discount: Any, extras_tm1: Any, extras_t: Any) -> np.ndarray:
    """New transitions have priority 1, which no priority of the learner's is."""
    return np.ones(len(reward))


def toy(**fields: Any) -> Toy:
    """Returns the toy agent with fields of its config set."""
    return Toy(ToyConfig(**fields))

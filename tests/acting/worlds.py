"""Small environments whose every number is known beforehand, and what watches them."""

from collections.abc import Sequence
from typing import Any

import acme.core
import dm_env
import numpy as np
from acme.utils.observers import EnvLoopObserver
from dm_env import specs

from acme_ext.acting.actor import Actor
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.policy import Policy
from acme_ext.acting.variables import VariableClient
from acme_ext.envs.vector import VectorEnvironment


class Corridor(dm_env.Environment):
    """Episodes of the given lengths, again and again; the observation tells environment, episode and step.

    A step is worth 1 + its action; every other episode is cut short, the rest end.
    """

    def __init__(self, name: int, lengths: Sequence[int]):
        self.name, self.lengths = name, lengths
        self.episode, self.time = -1, 0

    def _observation(self) -> np.ndarray:
        return np.array([self.name, self.episode, self.time], np.float32)

    def reset(self) -> dm_env.TimeStep:
        self.episode += 1
        self.time = 0
        return dm_env.restart(self._observation())

    def step(self, action: Any) -> dm_env.TimeStep:
        self.time += 1
        reward = np.float32(1 + int(action))
        if self.time < self.lengths[self.episode % len(self.lengths)]:
            return dm_env.transition(reward, self._observation())
        end = dm_env.truncation if self.episode % 2 else dm_env.termination
        return end(reward, self._observation())

    def observation_spec(self) -> specs.Array:
        return specs.Array((3,), np.float32, "place")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(5, np.int32)


LENGTHS = ([3, 1, 4], [2], [5, 2], [1], [7], [4, 4, 1], [2, 3], [6])


def corridors(num_envs: int) -> VectorEnvironment:
    return VectorEnvironment([Corridor(i, LENGTHS[i]) for i in range(num_envs)])


class Source(acme.core.VariableSource):
    """Gives the number of times it was asked, after an offset."""

    def __init__(self, offset: float = 0.0):
        self.calls, self.offset = 0, offset

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        assert list(names) == ["policy"]
        self.calls += 1
        return [np.float32(self.offset + self.calls)]


class Recorder:
    """A writer that keeps all it is told."""

    def __init__(self):
        self.events: list[tuple] = []

    def add_first(self, timestep):
        self.events.append(("first", _copy(timestep)))

    def add(self, action, next_timestep, extras=()):
        self.events.append(("step", np.copy(action), _copy(next_timestep), extras))


class Watcher(EnvLoopObserver):
    """Keeps what it sees of an episode, without copying."""

    def __init__(self):
        self.episodes: list[list] = []
        self.environments: set[int] = set()

    def observe_first(self, env, timestep):
        self.environments.add(id(env))
        self.episodes.append([(timestep, None)])

    def observe(self, env, timestep, action):
        self.environments.add(id(env))
        self.episodes[-1].append((timestep, action))

    def get_metrics(self):
        return {"seen": len(self.episodes[-1]), "actions": float(sum(a for _, a in self.episodes[-1][1:]))}


class Foreign(acme.core.Actor):
    """Somebody's actor of one environment, which keeps timesteps without copying."""

    def __init__(self):
        self.log: list[tuple] = []
        self.updates: list[bool] = []

    def select_action(self, observation):
        assert observation.shape == (3,)
        return int(observation[2]) % 5

    def observe_first(self, timestep):
        assert timestep.first()
        self.log.append((None, timestep))

    def observe(self, action, next_timestep):
        self.log.append((action, next_timestep))

    def update(self, wait=False):
        self.updates.append(wait)


def _copy(timestep):
    return dm_env.TimeStep(*(np.copy(x) for x in timestep))


def random_policy() -> Policy:
    """Uniform actions; the extras are a draw of the same key."""
    import jax

    def apply(params, context, observation, state):
        action = jax.vmap(lambda key: jax.random.randint(key, (), 0, 5))(context.key)
        return action, state, {"draw": jax.vmap(jax.random.uniform)(context.key)}

    return Policy(apply)


def counting_policy() -> Policy:
    """Counts the steps of an episode in its state, a vector and a scalar; the extras tell what it knows."""
    import jax.numpy as jnp

    def apply(params, context, observation, state):
        count = state["count"] + 1
        extras = {
            "count": count,
            "pair": state["pair"],
            "place": observation,
            "params": jnp.broadcast_to(params, count.shape),
            "steps": jnp.broadcast_to(context.steps, count.shape),
            "rank": context.rank,
        }
        return count % 5, {"count": count, "pair": state["pair"] + 0.5}, extras

    return Policy(
        apply,
        lambda batch: {"count": np.zeros(batch, np.int32), "pair": np.full((batch, 2), -1.0, np.float32)},
    )


def local_actor(
    policy: Policy, source: acme.core.VariableSource, key: Any, *, num_envs: int | None = None, writer=None, rank=None
) -> Actor:
    """An actor that applies the policy itself."""
    inference = LocalInference(policy, VariableClient(source), key, num_envs or 1, rank)
    return Actor(inference, num_envs=num_envs, writer=writer)

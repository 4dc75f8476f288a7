"""Stepping environments with an actor."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import dm_env
import numpy as np

from acme_ext import interfaces
from acme_ext.acting.unbatched import Observers
from acme_ext.envs.base import BatchedEnvironment

if TYPE_CHECKING:
    from acme.utils.counting import Counter
    from acme.utils.observers import EnvLoopObserver

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


class Episode(NamedTuple):
    """A finished episode."""

    env: int  # which of the batch
    episode_return: float  # sum of rewards as the environment gave them
    length: int  # steps
    metrics: dict[str, float]  # from observers


class EnvironmentLoop:
    """Steps a batch of environments with an actor, one step of all of them a call.

    Args:
        environment: the environments.
        actor: `acting.Actor` with as many environments, or any `acme.core.Actor` in a `SingleActor`.
        counter: counts `steps` (those the environments took, resets not counted) and `episodes`.
        on_episode: called with every finished episode.
        observers: Acme's, one list for each environment, whose timesteps alone they see; see `Observers`.
        should_update: whether the actor renews its parameters as it goes.
    """

    def __init__(
        self,
        environment: BatchedEnvironment,
        actor: interfaces.Actor,
        *,
        counter: "Counter | None" = None,
        on_episode: Callable[[Episode], None] | None = None,
        observers: "Sequence[Sequence[EnvLoopObserver]]" = (),
        should_update: bool = True,
    ):
        self._environment, self._actor = environment, actor
        self._counter, self._on_episode = counter, on_episode
        self._observers = Observers(environment, observers) if observers else None
        self._should_update = should_update
        self._timestep: dm_env.TimeStep | None = None
        self._returns = np.zeros(environment.num_envs)
        self._lengths = np.zeros(environment.num_envs, np.int64)
        self.steps = self.episodes = 0
        """Environment steps taken, and episodes that ended."""

    def step(self) -> int:
        """Steps all environments once (and resets them before the first time); returns the environment steps taken."""
        if self._timestep is None:
            self._timestep = self._environment.reset()
            self._actor.observe_first(self._timestep)
            if self._observers:
                self._observers.observe(None, self._timestep)
        action = self._actor.select_action(self._timestep.observation)
        timestep = self._timestep = self._environment.step(action)
        self._actor.observe(action, timestep)
        if self._should_update:
            self._actor.update()
        if self._observers:
            self._observers.observe(action, timestep)
        moved = timestep.step_type != _FIRST
        self._returns += timestep.reward  # zero in a row that was reset
        self._lengths += moved
        taken = int(np.count_nonzero(moved))
        ended = np.nonzero(timestep.step_type == _LAST)[0]
        self.steps += taken
        self.episodes += len(ended)
        if self._counter is not None:
            self._counter.increment(steps=taken, episodes=len(ended))
        for env in ended:
            self._finish(int(env))
        return taken

    def _finish(self, env: int) -> None:
        if self._on_episode is not None:
            metrics = self._observers.metrics(env) if self._observers else {}
            self._on_episode(Episode(env, float(self._returns[env]), int(self._lengths[env]), metrics))
        self._returns[env] = self._lengths[env] = 0

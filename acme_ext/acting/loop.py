"""The loop that steps environments with an actor."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import dm_env
import numpy as np

from acme_ext import interfaces
from acme_ext.acting.unbatched import Observers
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.types import FIRST, LAST

if TYPE_CHECKING:
    from acme.utils.counting import Counter
    from acme.utils.observers import EnvLoopObserver


class Episode(NamedTuple):
    """A finished episode."""

    env: int  # the environment's index in the batch
    episode_return: float  # undiscounted sum of the environment's rewards
    length: int  # steps
    metrics: dict[str, float]  # from observers


class EnvironmentLoop:
    """Steps a batch of environments with an actor; each call of `step` steps all environments once.

    Args:
        environment: the environments.
        actor: an `acting.Actor` with the same number of environments, or any `acme.core.Actor` in a `SingleActor`.
        counter: counts `steps`, without resets, and `episodes`.
        on_episode: called with every finished episode.
        observers: Acme observers, one list for each environment; they only see its timesteps. See `Observers`.
        should_update: whether to call the actor's `update` after every step.
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
        """Environment steps taken, and episodes finished."""

    def step(self) -> int:
        """Steps all environments once, after a reset in the first call; returns the number of environment steps."""
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
        moved = timestep.step_type != FIRST
        self._returns += timestep.reward  # zero in a row that was reset
        self._lengths += moved
        taken = int(np.count_nonzero(moved))
        self.steps += taken
        ended = np.flatnonzero(timestep.step_type == LAST).tolist()
        self.episodes += len(ended)
        if self._counter is not None:
            self._counter.increment(steps=taken, episodes=len(ended))
        for env in ended:
            self._finish(env)
        return taken

    def _finish(self, env: int) -> None:
        if self._on_episode is not None:
            metrics = self._observers.metrics(env) if self._observers else {}
            self._on_episode(Episode(env, float(self._returns[env]), int(self._lengths[env]), metrics))
        self._returns[env] = self._lengths[env] = 0

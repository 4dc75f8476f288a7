"""Adapters for Acme's actors and observers, which handle one environment, to a loop over a batch of environments."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dm_env
import numpy as np
import tree

from acme_ext import interfaces
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.errors import UsageError
from acme_ext.types import FIRST, Tree
from acme_ext.utils import loggers

if TYPE_CHECKING:
    from acme.utils.observers import EnvLoopObserver


class SingleActor(interfaces.Actor):
    """Lets any `acme.core.Actor` act in a batch of one environment."""

    def __init__(self, actor: interfaces.Actor):
        self._actor = actor

    def select_action(self, observation: Tree):
        action = self._actor.select_action(tree.map_structure(lambda x: x[0].copy(), observation))
        return np.asarray(action)[None]

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        self._actor.observe_first(_row(timestep, 0))

    def observe(self, action, next_timestep: dm_env.TimeStep) -> None:
        row = _row(next_timestep, 0)
        if row.first():
            self._actor.observe_first(row)
        else:
            self._actor.observe(action[0], row)

    def update(self, wait: bool = False) -> None:
        self._actor.update(wait)


class Observers:
    """Passes each environment's timesteps to its own observers.

    Args:
        environment: the batch. Observers of environment i receive `environment.environments[i]`, or the batch itself if
            it has no such attribute.
        observers: a list of observers for each environment.
    """

    def __init__(self, environment: BatchedEnvironment, observers: "Sequence[Sequence[EnvLoopObserver]]"):
        self._observers = observers
        self._environments = getattr(environment, "environments", [environment] * len(observers))

    def observe(self, action, timestep: dm_env.TimeStep) -> None:
        """Passes a batch of timesteps, and the actions that led to them, to the observers."""
        for env, observers in enumerate(self._observers):
            row = _row(timestep, env)
            for observer in observers:
                if row.first():
                    observer.observe_first(self._environments[env], row)
                else:
                    observer.observe(self._environments[env], row, action[env])

    def metrics(self, env: int) -> dict[str, float]:
        """Returns the metrics of an environment's observers for its finished episode."""
        found: dict[str, float] = {}
        for observer in self._observers[env]:
            metrics, said = observer.get_metrics(), f"a metric of {type(observer).__name__}"
            loggers.check_columns(metrics, said, {*loggers.COUNTERS, "episode_return", "episode_length"})
            try:
                found |= {name: float(value) for name, value in loggers.to_numbers(metrics).items()}
            except TypeError as error:
                raise UsageError(f"{said} can't be logged: {error}") from None
        return found


def _row(timestep: dm_env.TimeStep, env: int) -> dm_env.TimeStep:
    """Copies one environment's timestep out of a batch, because the next step overwrites the batch's arrays.

    As usual in dm_env, a FIRST timestep has no reward and no discount.
    """
    first = timestep.step_type[env] == FIRST
    return dm_env.TimeStep(
        step_type=dm_env.StepType(int(timestep.step_type[env])),
        reward=None if first else timestep.reward[env],
        discount=None if first else timestep.discount[env],
        observation=tree.map_structure(lambda x: x[env].copy(), timestep.observation),
    )

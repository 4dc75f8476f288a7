"""Acme's interfaces, of which actors, learners and loggers are subclasses.

Acme needs Python 3.10. On another Python the names stand for classes with the same methods, so that everything pure,
and compiled runs, work without it.
"""

import abc
import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import dm_env

if TYPE_CHECKING or importlib.util.find_spec("acme") is not None:
    from acme.core import Actor as Actor
    from acme.core import Learner as Learner
    from acme.core import VariableSource as VariableSource
    from acme.specs import EnvironmentSpec as EnvironmentSpec
    from acme.utils.loggers.base import Logger as Logger
else:

    class EnvironmentSpec(NamedTuple):
        """What an agent knows of its environment."""

        observations: Any
        actions: Any
        rewards: Any
        discounts: Any

    class Actor(abc.ABC):
        """Acts in an environment."""

        @abc.abstractmethod
        def select_action(self, observation: Any) -> Any:
            """Returns an action."""

        @abc.abstractmethod
        def observe_first(self, timestep: dm_env.TimeStep) -> None:
            """Takes an episode's first timestep."""

        @abc.abstractmethod
        def observe(self, action: Any, next_timestep: dm_env.TimeStep) -> None:
            """Takes an action and the timestep that it led to."""

        @abc.abstractmethod
        def update(self, wait: bool = False) -> None:
            """Renews the parameters."""

    class VariableSource(abc.ABC):
        """Has named variables."""

        @abc.abstractmethod
        def get_variables(self, names: Sequence[str]) -> list[Any]:
            """Returns the variables of these names."""

    class Learner(VariableSource):
        """Learns by steps."""

        @abc.abstractmethod
        def step(self) -> None:
            """Makes one learner step."""

        def run(self, num_steps: int | None = None) -> None:
            """Makes so many steps, or goes on for ever."""
            for _ in itertools.count() if num_steps is None else range(num_steps):
                self.step()

    class Logger(abc.ABC):
        """Takes rows of metrics."""

        @abc.abstractmethod
        def write(self, data: Mapping[str, Any]) -> None:
            """Writes a row."""

        @abc.abstractmethod
        def close(self) -> None:
            """Ends it."""

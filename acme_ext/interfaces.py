"""Acme's interfaces, the base classes of actors, learners and loggers.

Acme needs Python 3.10. If it is not installed, this module defines classes with the same names and methods, so that the
pure functions and compiled runs work without it.
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
        """The specs of an environment."""

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
            """Observes the first timestep of an episode."""

        @abc.abstractmethod
        def observe(self, action: Any, next_timestep: dm_env.TimeStep) -> None:
            """Observes an action and the timestep that follows it."""

        @abc.abstractmethod
        def update(self, wait: bool = False) -> None:
            """Updates the parameters."""

    class VariableSource(abc.ABC):
        """Provides named variables."""

        @abc.abstractmethod
        def get_variables(self, names: Sequence[str]) -> list[Any]:
            """Returns the variables with these names."""

    class Learner(VariableSource):
        """Learns in steps."""

        @abc.abstractmethod
        def step(self) -> None:
            """Performs one learner step."""

        def run(self, num_steps: int | None = None) -> None:
            """Performs `num_steps` steps, or runs forever if it is None."""
            for _ in itertools.count() if num_steps is None else range(num_steps):
                self.step()

    class Logger(abc.ABC):
        """Writes rows of metrics."""

        @abc.abstractmethod
        def write(self, data: Mapping[str, Any]) -> None:
            """Writes a row."""

        @abc.abstractmethod
        def close(self) -> None:
            """Closes the logger."""

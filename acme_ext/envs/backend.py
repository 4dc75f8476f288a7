"""The interface of a family of environments for the registry, and the seeds of environments."""

import abc
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar

import dm_env
import numpy as np

from acme_ext.config.types import AT_LEAST_ONE
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.envs.functional import FunctionalBatch, FunctionalEnvironment
from acme_ext.envs.single import Unbatched

Limit = Annotated[int | None, AT_LEAST_ONE]
"""The type of a time limit in steps, which may be None."""

_HALF = 2**30
_ROOM = 2**20


class Backend(abc.ABC):
    """The environments of one family; `acme_ext.envs.registry` checks name and options before it calls `load`."""

    types: ClassVar[Mapping[str, Any]] = {}
    """The types of options, such as `PositiveInt`; any other option has the type of its default."""

    @abc.abstractmethod
    def names(self) -> Collection[str]:
        """Returns the names of all environments, without the family's prefix."""

    def canonical(self, name: str) -> str:
        """Returns the name in `names` that a `name` stands for; by default `name` itself."""
        return name

    def alternatives(self, name: str) -> Collection[str]:
        """Returns names to suggest instead of an unknown `name`."""
        del name
        return self.names()

    @abc.abstractmethod
    def options(self, name: str) -> Mapping[str, Any]:
        """Returns an environment's options with their defaults; by itself, a default of None allows any value."""

    @abc.abstractmethod
    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        """Makes one environment, of any precision."""

    def load_batch(
        self, name: str, num_envs: int, seed: int, evaluation: bool, **options: Any
    ) -> BatchedEnvironment | None:
        """Makes a natively batched environment; None if there is none, or if a list of environments is better."""
        del name, num_envs, seed, evaluation, options
        return None

    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment | None:
        """Makes the environment as pure functions, for compiled runs; None if it is not written in JAX."""
        del name, evaluation, options
        return None


class FunctionalBackend(Backend):
    """A family whose environments are written in JAX; `load` and `load_batch` use `functional`."""

    @abc.abstractmethod
    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment: ...

    def options(self, name: str) -> Mapping[str, Any]:
        return {}

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        return Unbatched(self.load_batch(name, 1, seed, evaluation, **options))

    def load_batch(self, name: str, num_envs: int, seed: int, evaluation: bool, **options: Any) -> BatchedEnvironment:
        return FunctionalBatch(self.functional(name, evaluation, **options), num_envs, seed)


def environment_seed(seed: int, evaluation: bool, index: int = 0) -> int:
    """Returns the seed in [0, 2**31) of the environment at `index` of a run's training or evaluation batch.

    Training and evaluation seeds lie in different halves of the range, so they never coincide, even in different runs.
    The end of each half is left free for backends that count up from a batch's seed. Among n environments of one half,
    the probability that two have the same seed is about n**2 / 2**31.
    """
    word = np.random.SeedSequence(seed, spawn_key=(int(evaluation), index)).generate_state(1)[0]
    return int(word) % (_HALF - _ROOM) + (_HALF if evaluation else 0)

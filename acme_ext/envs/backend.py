"""What a family of environments gives the registry, and the seeds of its environments."""

import abc
from collections.abc import Collection, Mapping
from typing import Any

import dm_env
import numpy as np

from acme_ext.envs.base import BatchedEnvironment
from acme_ext.envs.functional import FunctionalBatch, FunctionalEnvironment
from acme_ext.envs.single import Unbatched

_HALF = 2**30
_ROOM = 2**20


class Backend(abc.ABC):
    """One family's environments; `acme_ext.envs.registry` calls these after it has checked name and options."""

    @abc.abstractmethod
    def names(self) -> Collection[str]:
        """The names of all its environments, without the family."""

    def canonical(self, name: str) -> str:
        """The one of `names` that is meant by `name`; itself where the family knows no other spelling."""
        return name

    def alternatives(self, name: str) -> Collection[str]:
        """What could be written in place of a `name` that is none."""
        del name
        return self.names()

    @abc.abstractmethod
    def options(self, name: str) -> Mapping[str, Any]:
        """The options an environment takes, with their defaults; a default of None leaves an option's type open."""

    @abc.abstractmethod
    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        """One environment, of any precision."""

    def load_batch(
        self, name: str, num_envs: int, seed: int, evaluation: bool, **options: Any
    ) -> BatchedEnvironment | None:
        """A natively batched environment, where there is one that is better than a list."""
        del name, num_envs, seed, evaluation, options
        return None

    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment | None:
        """The environment as pure functions, for compiled runs, where it is written in JAX."""
        del name, evaluation, options
        return None


class FunctionalBackend(Backend):
    """A family whose environments are written in JAX: all ways of having one come from `functional`."""

    @abc.abstractmethod
    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment: ...

    def options(self, name: str) -> Mapping[str, Any]:
        return {}

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        return Unbatched(self.load_batch(name, 1, seed, evaluation, **options))

    def load_batch(self, name: str, num_envs: int, seed: int, evaluation: bool, **options: Any) -> BatchedEnvironment:
        return FunctionalBatch(self.functional(name, evaluation, **options), num_envs, seed)


def environment_seed(seed: int, evaluation: bool, index: int = 0) -> int:
    """The seed in [0, 2**31) of the environment at `index` of a run's training or evaluation batch.

    Training and evaluation never meet, not even in different runs: their seeds lie in different halves. Below each
    half's end there is room for backends that count up from a batch's seed. Two of n environments of one half have the
    same seed with a chance of about n**2 / 2**31.
    """
    word = np.random.SeedSequence(seed, spawn_key=(int(evaluation), index)).generate_state(1)[0]
    return int(word) % (_HALF - _ROOM) + (_HALF if evaluation else 0)

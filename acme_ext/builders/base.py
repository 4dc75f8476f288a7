"""What an agent is made of."""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import jax
import numpy as np

from acme_ext.acting.actor import Actor
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.policy import Policy
from acme_ext.acting.variables import VariableClient
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.learner import Learner
from acme_ext.learning.priorities import PriorityUpdater
from acme_ext.types import Array, EnvironmentSpec


class Replay(Protocol):
    """What a run asks of a replay; `replay.TransitionReplay` is one."""

    table: str

    @property
    def batch_size(self) -> int: ...
    @property
    def prioritized(self) -> bool: ...
    @property
    def in_order(self) -> bool: ...
    def tables(self) -> list: ...
    def writer(
        self, client: Any, num_envs: int, *, max_pending: int | None = ..., on_wait: Callable[[], None] = ...
    ) -> Any: ...
    def dataset(self, client: Any, num_batches: int = 1, *, on_wait: Callable[[], None] = ...) -> Any: ...
    def split(self, shards: int) -> "Replay": ...
    def decode(self, rows: Array) -> Any: ...
    def samples_allowed(self, inserts: int) -> float: ...


@dataclasses.dataclass(frozen=True)
class Builder(abc.ABC):
    """An agent: its config, and how its replay, policy and learner core are made from it.

    A new agent writes the three abstract methods; the rest is the same for all. Builders are frozen, and picklable
    where their fields are, so that the parts can be made in any process.
    """

    name: ClassVar[str]
    presets: ClassVar[Mapping[str, Any]] = {}
    """Configs for whole families of environments, where the default doesn't serve."""

    config: Any

    @classmethod
    def for_environment(cls, environment: str) -> "Builder":
        """Returns the builder with the preset of an environment's family, or with its defaults."""
        family = environment.partition(":")[0]
        return cls(cls.presets[family]) if family in cls.presets else cls()  # type: ignore[call-arg]

    @abc.abstractmethod
    def make_replay(self, spec: EnvironmentSpec) -> Replay:
        """Returns the replay that actors write and the learner reads."""

    @abc.abstractmethod
    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        """Returns how to act, in training or in evaluation."""

    @abc.abstractmethod
    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        """Returns the algorithm's learning."""

    @property
    def sgd_steps_per_call(self) -> int:
        """SGD steps that the learner fuses in one compiled call, where the agent allows it."""
        return 1

    @property
    def variable_period(self) -> int:
        """Steps that an actor takes before it renews its parameters."""
        return 1

    def make_learner(
        self,
        core: LearnerCore,
        replay: Replay,
        dataset: Iterator[Any],
        clients: Sequence[Any],
        key: Array,
        *,
        devices: Sequence[jax.Device] | None = None,
    ) -> Learner:
        """Returns the learner, which reads `dataset` (of `sgd_steps_per_call` batches) and sends priorities to the
        Reverb `clients`, one for each shard of the replay.
        """
        return Learner(
            core,
            dataset,
            replay.decode,
            key,
            batch_size=replay.batch_size,
            steps_per_call=self.sgd_steps_per_call,
            priorities=PriorityUpdater(clients, replay.table) if replay.prioritized else None,
            devices=devices,
        )

    def make_actor(
        self,
        policy: Policy,
        variables: VariableClient,
        key: Array,
        *,
        num_envs: int | None = None,
        writer: Any = None,
        rank: np.ndarray | None = None,
    ) -> Actor:
        """Returns an actor that applies the policy itself; see `acting.Actor` and `acting.LocalInference`."""
        inference = LocalInference(policy, variables, key, num_envs or 1, rank)
        return Actor(inference, num_envs=num_envs, writer=writer)

"""What an agent is made of."""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import jax
import numpy as np

from acme_ext import specs
from acme_ext.acting.actor import Actor, Writer
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.policy import Policy
from acme_ext.acting.stochastic import EXTRAS
from acme_ext.acting.variables import VariableClient
from acme_ext.builders import options
from acme_ext.builders.presets import HasPresets
from acme_ext.builders.presets import Preset as Preset
from acme_ext.learning.bonus import Bonus
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.learner import Learner
from acme_ext.learning.priorities import PriorityUpdater
from acme_ext.networks.torsos import Torso
from acme_ext.replay.base import Replay
from acme_ext.replay.config import TransitionConfig, UnrollConfig
from acme_ext.replay.mixed import Mixed
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import Array, EnvironmentSpec, Tree


@dataclasses.dataclass(frozen=True)
class Agent:
    """The parts of an agent for one environment, which agree with each other; `Builder.make_agent` makes it."""

    replay: Replay
    core: LearnerCore
    policy: Policy
    evaluation_policy: Policy
    sgd_steps_per_call: int = 1  # SGD steps that the learner makes in one compiled call
    variable_period: int = 1  # steps that an actor takes before it renews its parameters
    pretrain_steps: int = 0  # SGD steps on demonstrations alone, before anything else
    demo_offset: float = 0.0  # added to a demonstration's |TD error| in its priority

    def make_learner(
        self,
        dataset: Iterator[Any],
        clients: Sequence[Any],
        key: Array,
        *,
        devices: Sequence[jax.Device] | None = None,
    ) -> Learner:
        """Returns the learner.

        Args:
            dataset: gives `sgd_steps_per_call` batches at a time.
            clients: Reverb's, one for each shard of the replay, for the priorities.
            key: starts the core.
            devices: see `Learner`.
        """
        replay, updater = self.replay, None
        if replay.prioritized:
            fixed = dataset.fixed if isinstance(dataset, Mixed) else None
            updater = PriorityUpdater(clients, replay.table, replay.priority_offset, fixed)
        return Learner(
            self.core,
            dataset,
            replay.decode,
            key,
            batch_size=replay.batch_size,
            steps_per_call=self.sgd_steps_per_call,
            priorities=updater,
            importance_exponent=replay.importance_exponent_at if replay.prioritized else None,
            devices=devices,
        )

    def make_actor(
        self,
        variables: VariableClient,
        key: Array,
        *,
        evaluation: bool = False,
        num_envs: int | None = None,
        writer: Writer | None = None,
        rank: np.ndarray | None = None,
    ) -> Actor:
        """Returns an actor that applies the policy itself; see `acting.Actor` and `acting.LocalInference`."""
        policy = self.evaluation_policy if evaluation else self.policy
        inference = LocalInference(policy, variables, key, num_envs or 1, rank)
        return Actor(inference, num_envs=num_envs, writer=writer)


@dataclasses.dataclass(frozen=True)
class Builder(HasPresets, abc.ABC):
    """An agent: its config, and how its networks, replay, policy and learner core are made.

    A new agent writes `make_networks`, `make_policy` and `make_core`. Of the config, this class reads `replay`,
    `batch_size`, `discount` and, where there are such fields, `max_abs_reward`, `normalize_observations`,
    `max_abs_observation`, `random_shift`, `sgd_steps_per_call`, `variable_period`, `pretrain_steps` and
    `demo_priority_offset`.
    Builders are frozen, and picklable where their fields are, so that the parts can be made in any process.
    """

    name: ClassVar[str]
    actions: ClassVar[Literal["discrete", "continuous", "any"]] = "any"
    """Which actions the agent can take; `any` leaves it to the networks to say."""
    wants_demos: ClassVar[bool] = False
    """Whether it can't learn without demonstrations."""
    learns_rewards: ClassVar[bool] = True
    """Whether it learns from the environment's rewards."""

    config: Any
    average_rate: float | None = dataclasses.field(default=None, kw_only=True)
    """Evaluations act by a moving average of the policy's parameters, of which the newest have this share, see
    `learning.averaged`; None: by the newest alone."""
    intrinsic: str | Bonus | None = dataclasses.field(default=None, kw_only=True)
    """Adds a bonus for what is new to the reward that is learned from, see `learning.bonus`; a name is one of its
    `BONUSES`."""
    intrinsic_weight: float | None = dataclasses.field(default=None, kw_only=True)
    """What that bonus is multiplied by; None: by its own default."""

    def __post_init__(self):
        options.check_fields(self)
        super().__post_init__()

    @abc.abstractmethod
    def make_networks(self, spec: EnvironmentSpec) -> Any:
        """Returns the networks, which replay, policy and core are then given."""

    def make_replay(self, spec: EnvironmentSpec, networks: Any) -> Replay:
        """Returns the replay that actors write and the learner reads: by default that of `config.replay`."""
        c = self.config
        fields: dict[str, Any] = {"batch_size": c.batch_size, "discount": c.discount, "priority": self.first_error}
        if isinstance(c.replay, TransitionConfig):
            clip = getattr(c, "max_abs_reward", None)
            return TransitionReplay.of(spec, c.replay, max_abs_reward=clip, extras=self.extras, **fields)
        extras = EXTRAS if isinstance(c.replay, UnrollConfig) else self.extras
        return SequenceReplay.of(spec, c.replay, state=networks.memory_spec(), extras=extras, **fields)

    @property
    def first_error(self) -> Callable[..., Array] | None:
        """What gives the errors by which new items of a prioritized replay get their first priorities; see `Replay`."""
        return None

    @property
    def extras(self) -> Tree:
        """Arrays that stand for the policy's extras of one environment's step, to have them stored in a replay of
        transitions or overlapping sequences; nothing to store none.
        """
        return ()

    @abc.abstractmethod
    def make_policy(self, spec: EnvironmentSpec, networks: Any, *, evaluation: bool = False) -> Policy:
        """Returns how to act, in training or in evaluation."""

    @abc.abstractmethod
    def make_core(self, spec: EnvironmentSpec, networks: Any) -> LearnerCore:
        """Returns the algorithm's learning."""

    def warning(self, log: str, row: Mapping[str, Any]) -> str | None:
        """Returns what the user is told, once, of a row of the log `learner` or `actor`; None for nothing."""
        return None

    def make_agent(self, spec: EnvironmentSpec) -> Agent:
        """Returns all parts for an environment; computes nothing, and starts no device.

        Raises:
            UsageError: the agent can't act in the environment, or its replay could never work.
        """
        options.check_actions(self, spec)
        networks = self.make_networks(spec)
        replay = self.make_replay(spec, networks)
        policies = self.make_policy(spec, networks), self.make_policy(spec, networks, evaluation=True)
        core, (policy, evaluation_policy) = options.apply(self, spec, replay, self.make_core(spec, networks), policies)
        return Agent(
            replay,
            core,
            policy,
            evaluation_policy,
            sgd_steps_per_call=getattr(self.config, "sgd_steps_per_call", 1),
            variable_period=getattr(self.config, "variable_period", 1),
            pretrain_steps=getattr(self.config, "pretrain_steps", 0),
            demo_offset=getattr(self.config, "demo_priority_offset", replay.priority_offset),
        )


@dataclasses.dataclass(frozen=True)
class FunctionalBuilder(Builder):
    """A builder whose policy and core are made by functions of the networks and the config.

    A subclass gives both as static methods, and writes `make_networks`.
    """

    policy_of: ClassVar[Callable[..., Policy]]
    """`(networks, config, *, evaluation) -> Policy`."""
    core_of: ClassVar[Callable[..., LearnerCore]]
    """`(networks, config, observation [1, ...]) -> LearnerCore`."""

    def make_policy(self, spec: EnvironmentSpec, networks: Any, *, evaluation: bool = False) -> Policy:
        return type(self).policy_of(networks, self.config, evaluation=evaluation)

    def make_core(self, spec: EnvironmentSpec, networks: Any) -> LearnerCore:
        return type(self).core_of(networks, self.config, specs.zeros(spec.observations, 1))


@dataclasses.dataclass(frozen=True)
class NetworkBuilder(FunctionalBuilder):
    """A functional builder with a network of a torso.

    Attributes:
        config: hyperparameters.
        torso: makes features of observations, see `networks.torsos.features`.
        network: `(spec, config, torso) -> network`, as the agent's policy and core take it: of the environment's spec,
            and of the two other fields.
    """

    torso: str | Torso | None = None
    network: Callable[..., Any] = dataclasses.field(kw_only=True)

    def make_networks(self, spec: EnvironmentSpec) -> Any:
        return options.make_networks(self, spec)

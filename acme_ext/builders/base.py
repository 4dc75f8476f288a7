"""What an agent is made of."""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import jax
import numpy as np

from acme_ext import envs, specs
from acme_ext.acting.actor import Actor, Writer
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.policy import Policy
from acme_ext.acting.stochastic import EXTRAS
from acme_ext.acting.variables import VariableClient
from acme_ext.errors import UsageError, nearest
from acme_ext.learning import normalize
from acme_ext.learning.averaged import averaged_core, averaged_policy
from acme_ext.learning.bonus import BONUSES, Bonus
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.learner import Learner
from acme_ext.learning.normalized import MAX_ABS, normalized_core, normalized_policy
from acme_ext.learning.priorities import PriorityUpdater
from acme_ext.learning.prioritized import prioritized_core, prioritized_policy
from acme_ext.learning.shifted import shifted_core
from acme_ext.networks.recurrent import CORES
from acme_ext.networks.torsos import TORSOS
from acme_ext.replay.base import Replay
from acme_ext.replay.config import SequenceConfig, TransitionConfig, UnrollConfig
from acme_ext.replay.mixed import Mixed
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import Array, EnvironmentSpec, Tree

Self = TypeVar("Self", bound="Builder")


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
class Preset:
    """Settings for a kind of environment, where the defaults don't serve.

    Attributes:
        fields: of the builder.
        environment: options of the environment, by its family, as options of one meaning have other names in each.
    """

    fields: Mapping[str, Any]
    environment: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Builder(abc.ABC):
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
    """Whether it is nothing of its own without demonstrations."""
    presets: ClassVar[Mapping[str, Preset]] = {}
    """By the kind of an environment, see `envs.kind`."""

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
        if not dataclasses.is_dataclass(self.config) or isinstance(self.config, type):
            shown = f"the class {self.config.__name__}" if isinstance(self.config, type) else repr(self.config)
            raise UsageError(f"the config of {type(self).__name__} is {shown}: it must be an object of a dataclass.")
        default = type(self).__dataclass_fields__["config"].default
        if default is not dataclasses.MISSING and not isinstance(self.config, type(default)):
            raise UsageError(
                f"{type(self).__name__} takes a {type(default).__name__}, not a {type(self.config).__name__}."
            )
        if self.average_rate is not None and not 0 < self.average_rate <= 1:
            raise UsageError(f"average_rate is {self.average_rate}: it must be above 0 and at most 1, or none.")
        for field, known in (("torso", TORSOS), ("core", CORES), ("intrinsic", BONUSES)):
            name = getattr(self, field, None)
            if isinstance(name, str) and name not in known:
                raise UsageError(f"there is no {field} {name!r}: {nearest(name, known)}")
        unset = frozenset(f.name for f in dataclasses.fields(self) if getattr(self, f.name) is f.default)
        object.__setattr__(self, "_unset", unset)

    def for_environment(self: Self, environment: str | Callable[..., Any]) -> Self:
        """Returns the builder with the preset for an environment's kind, in all fields that the user has not set."""
        unset: frozenset[str] = self._unset  # type: ignore[attr-defined]
        preset = self.preset_for(environment).fields
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        return self._with({name: preset.get(name, defaults[name]) for name in unset}, unset)

    def replace(self: Self, **fields: Any) -> Self:
        """Returns the builder with fields that the user sets: no preset changes them, not even those that are set to
        their defaults.
        """
        unset: frozenset[str] = self._unset  # type: ignore[attr-defined]
        return self._with(fields, unset - fields.keys())

    def _with(self: Self, fields: Mapping[str, Any], unset: frozenset[str]) -> Self:
        builder = dataclasses.replace(self, **fields)
        object.__setattr__(builder, "_unset", unset)
        return builder

    @classmethod
    def preset_for(cls, environment: str | Callable[..., Any]) -> Preset:
        """Returns the preset for an environment, which is empty where there is none."""
        return cls.presets.get(envs.kind(environment) or "", Preset({}))

    @abc.abstractmethod
    def make_networks(self, spec: EnvironmentSpec) -> Any:
        """Returns the networks, which replay, policy and core are then given."""

    def make_replay(self, spec: EnvironmentSpec, networks: Any) -> Replay:
        """Returns the replay that actors write and the learner reads: by default that of `config.replay`."""
        c = self.config
        shared = {"batch_size": c.batch_size, "discount": c.discount}
        drawn: dict[str, Any] = {**shared, "priority": self.first_error, "extras": self.extras}
        if isinstance(c.replay, TransitionConfig):
            clip = getattr(self.config, "max_abs_reward", None)
            return TransitionReplay.of(spec, c.replay, max_abs_reward=clip, **drawn)
        state = networks.memory_spec()
        if isinstance(c.replay, SequenceConfig):
            return SequenceReplay.of(spec, c.replay, state=state, **drawn)
        return SequenceReplay.queue(spec, c.replay, state=state, extras=EXTRAS, **shared)

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

    def make_agent(self, spec: EnvironmentSpec) -> Agent:
        """Returns all parts for an environment; computes nothing, and starts no device.

        Raises:
            UsageError: the agent can't act in the environment, or its replay could never work.
        """
        if self.actions == "discrete":
            specs.num_actions(spec, type(self).__name__)
        elif self.actions == "continuous":
            specs.action_size(spec, type(self).__name__)
        networks = self.make_networks(spec)
        replay = self.make_replay(spec, networks)
        policy, evaluation_policy = (self.make_policy(spec, networks, evaluation=e) for e in (False, True))
        core = self.make_core(spec, networks)
        example = specs.zeros(spec.observations, 1)
        if (most := getattr(self.config, "random_shift", None)) is not None:
            core = shifted_core(core, example, most)
        if getattr(self.config, "normalize_observations", False) and normalize.fields_of(example, example):
            max_abs = getattr(self.config, "max_abs_observation", MAX_ABS)
            core = normalized_core(core, example, max_abs)
            policy, evaluation_policy = (normalized_policy(p, example, max_abs) for p in (policy, evaluation_policy))
        if self.intrinsic is not None:
            core = self._with_bonus(core, self.intrinsic, policy, example)
        if replay.needs_largest_error:
            core = prioritized_core(core)
            policy, evaluation_policy = prioritized_policy(policy), prioritized_policy(evaluation_policy)
        if self.average_rate is not None:
            core = averaged_core(core, self.average_rate)
            policy = averaged_policy(policy, evaluation=False)
            evaluation_policy = averaged_policy(evaluation_policy, evaluation=True)
        fused = getattr(self.config, "sgd_steps_per_call", 1)
        if fused < 1:
            raise UsageError(f"sgd_steps_per_call is {fused}: it must be at least 1.")
        return Agent(
            replay,
            core,
            policy,
            evaluation_policy,
            fused,
            getattr(self.config, "variable_period", 1),
            getattr(self.config, "pretrain_steps", 0),
            getattr(self.config, "demo_priority_offset", replay.priority_offset),
        )

    def _with_bonus(self, core: LearnerCore, intrinsic: str | Bonus, policy: Policy, observation: Tree) -> LearnerCore:
        """Returns the core that also learns from the bonus; raises UsageError where the agent can't."""
        if hasattr(self.config, "distillation"):
            raise UsageError(f"{type(self).__name__} has a bonus of its own: intrinsic is for agents without one.")
        if not isinstance(self.config.replay, TransitionConfig | SequenceConfig | UnrollConfig):
            raise UsageError(f"intrinsic is {intrinsic!r}: the replay of {type(self).__name__} can't carry a bonus.")
        if jax.tree.leaves(policy.init_state(1)):
            raise UsageError(
                f"intrinsic is {intrinsic!r}: {type(self).__name__} has a recurrent network, which is given the "
                "environment's rewards. Take ngu or agent57, or a network without memory."
            )
        bonus = BONUSES[intrinsic] if isinstance(intrinsic, str) else intrinsic
        weight = {} if self.intrinsic_weight is None else {"weight": self.intrinsic_weight}
        return bonus(core, observation, **weight)


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

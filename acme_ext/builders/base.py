"""The parts of an agent, and the base classes of the builders that make them."""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from acme_ext import specs
from acme_ext.acting.actor import Actor, Writer
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.policy import Policy
from acme_ext.acting.stochastic import EXAMPLE_EXTRAS
from acme_ext.acting.variables import VariableClient
from acme_ext.builders import options
from acme_ext.builders.capabilities import Capabilities
from acme_ext.builders.presets import HasPresets
from acme_ext.builders.presets import Preset as Preset
from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import NonNegative, PositiveShare
from acme_ext.learning.bonus import Bonus
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.learner import Learner
from acme_ext.learning.priorities import make_updater
from acme_ext.networks.torsos import TORSOS, Torso
from acme_ext.replay.base import Replay
from acme_ext.replay.config import TransitionConfig, UnrollConfig
from acme_ext.replay.mixed import Mixed
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.replay.table import Table
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import Array, EnvironmentSpec, Tree


@dataclasses.dataclass(frozen=True)
class Agent:
    """The parts of an agent for one environment; `Builder.make_agent` makes them to fit each other."""

    replay: Replay
    core: LearnerCore
    policy: Policy
    evaluation_policy: Policy
    sgd_steps_per_call: int = 1  # learner steps in one compiled call
    variable_period: int = 1  # steps of an actor between fetches of new parameters
    pretrain_steps: int = 0  # learner steps on demonstrations only, before acting begins
    demo_offset: float = 0.0  # added to a demonstration's |TD error| when its priority is computed

    def make_learner(
        self,
        dataset: Iterator[Any],
        tables: Sequence[Table],
        key: Array,
        *,
        devices: Sequence[jax.Device] | None = None,
    ) -> Learner:
        """Returns the learner.

        Args:
            dataset: an iterator; each item holds `sgd_steps_per_call` batches.
            tables: the replay's tables, one for each shard, whose priorities the learner updates.
            key: random key that initializes the core.
            devices: see `Learner`.
        """
        replay, updater = self.replay, None
        if replay.prioritized:
            fixed = dataset.fixed if isinstance(dataset, Mixed) else None
            updater = make_updater(tables, fixed)
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
        """Returns an actor that applies the policy in its own process; see `acting.Actor`, `acting.LocalInference`."""
        policy = self.evaluation_policy if evaluation else self.policy
        inference = LocalInference(policy, variables, key, num_envs or 1, rank)
        return Actor(inference, num_envs=num_envs, writer=writer)


@dataclasses.dataclass(frozen=True)
class Builder(Capabilities, HasPresets, abc.ABC):
    """An agent: its config, and the methods that make its networks, replay, policy and learner core.

    A new agent implements `make_networks`, `make_policy` and `make_core`. This class reads the settings that
    `AgentConfig` declares. A builder whose core clips rewards overrides `clipping`, so that an exploration bonus is
    added after the rewards are clipped.
    Builders are frozen, and picklable if their fields are, so that any process can make the parts.
    """

    config: AgentConfig
    average_rate: PositiveShare | None = dataclasses.field(default=None, kw_only=True)
    """The weight of the newest parameters in a moving average of the policy's parameters, which evaluations use; see
    `learning.averaged`. With None, evaluations use the newest parameters."""
    intrinsic: str | Bonus | None = dataclasses.field(default=None, kw_only=True)
    """An exploration bonus that is added to the reward during learning: a function, or a name in `BONUSES`; see
    `learning.bonus`."""
    intrinsic_weight: NonNegative | None = dataclasses.field(default=None, kw_only=True)
    """The factor that the bonus is multiplied by; None uses the bonus's own default."""

    def __post_init__(self):
        options.check_builder(self, own_replay=type(self).make_replay is not Builder.make_replay)
        super().__post_init__()

    @abc.abstractmethod
    def make_networks(self, spec: EnvironmentSpec) -> Any:
        """Returns the networks, which are passed to the methods that make the replay, the policy and the core."""

    def make_replay(self, spec: EnvironmentSpec, networks: Any) -> Replay:
        """Returns the replay that actors write to and the learner samples from; `config.replay` gives its settings."""
        c = self.config
        fields: dict[str, Any] = {"batch_size": c.batch_size, "discount": c.discount, "priority": self.first_error}
        if isinstance(c.replay, TransitionConfig):
            fields["max_abs_reward"] = c.max_abs_reward
            return TransitionReplay.of(spec, c.replay, extras=self.extras, **fields)
        extras = EXAMPLE_EXTRAS if isinstance(c.replay, UnrollConfig) else self.extras
        # Only shapes: where programs describe their nodes, JAX must not compute anything.
        state = jax.eval_shape(lambda: self.make_policy(spec, networks).init_state(1))
        state = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), state)
        return SequenceReplay.of(spec, c.replay, state=state, extras=extras, **fields)

    @property
    def first_error(self) -> Callable[..., Array] | None:
        """The function that computes the errors for new items' initial priorities, or None; see `Replay`."""
        return None

    @property
    def clipping(self) -> tuple[Callable[[Array], Array], Any] | None:
        """The function by which the learner core clips rewards, and a config for a core that doesn't; None if rewards
        aren't clipped.

        With an exploration bonus, rewards are clipped before the bonus is added.
        """
        return None

    @property
    def extras(self) -> Tree:
        """Example arrays of the policy's extras for one step of one environment, without a batch axis.

        A replay of transitions or overlapping sequences stores such extras. By default there are none.
        """
        return ()

    @abc.abstractmethod
    def make_policy(self, spec: EnvironmentSpec, networks: Any, *, evaluation: bool = False) -> Policy:
        """Returns the policy for training, or the one for evaluation."""

    @abc.abstractmethod
    def make_core(self, spec: EnvironmentSpec, networks: Any) -> LearnerCore:
        """Returns the learner core, which holds the algorithm's update."""

    def warning(self, log: str, row: Mapping[str, Any]) -> str | None:
        """Returns a warning about a row of the log `learner` or `actor`, or None; the user sees one warning per log."""
        return None

    def make_agent(self, spec: EnvironmentSpec) -> Agent:
        """Returns all parts for an environment, without computing anything on a device.

        Raises:
            UsageError: the agent can't act in the environment, or its replay's settings can't work.
        """
        c = self.config
        options.check_actions(self.actions, spec, type(self).__name__)
        networks = self.make_networks(spec)
        replay = self.make_replay(spec, networks)
        policies = self.make_policy(spec, networks), self.make_policy(spec, networks, evaluation=True)
        core, (policy, evaluation_policy) = options.apply(self, spec, networks, replay, policies)
        return Agent(
            replay,
            core,
            policy,
            evaluation_policy,
            sgd_steps_per_call=c.sgd_steps_per_call,
            variable_period=c.variable_period,
            pretrain_steps=c.pretrain_steps,
            demo_offset=replay.priority_offset if c.demo_priority_offset is None else c.demo_priority_offset,
        )


@dataclasses.dataclass(frozen=True)
class NetworkBuilder(Builder):
    """A builder that makes its parts with functions: the network or networks, the policy and the core.

    A subclass sets `policy_of` and `core_of` as static methods, and a default for `network`.

    Attributes:
        config: hyperparameters.
        torso: computes features from observations; see `networks.torsos.features`.
        network: a function `(spec, config, torso) -> network`. It receives the environment's spec and the two other
            fields, and returns the network or the networks that the agent's policy and core use.
    """

    policy_of: ClassVar[Callable[..., Policy]]
    """`(network, config, *, evaluation) -> Policy`."""
    core_of: ClassVar[Callable[..., LearnerCore]]
    """`(network, config, observation [1, ...]) -> LearnerCore`."""

    parts = {"torso": TORSOS}

    torso: str | Torso | None = None
    network: Callable[..., Any] = dataclasses.field(kw_only=True)

    def make_networks(self, spec: EnvironmentSpec) -> Any:
        return options.make_networks(self, spec)

    def make_policy(self, spec: EnvironmentSpec, networks: Any, *, evaluation: bool = False) -> Policy:
        return type(self).policy_of(networks, self.config, evaluation=evaluation)

    def make_core(self, spec: EnvironmentSpec, networks: Any) -> LearnerCore:
        return type(self).core_of(networks, self.config, specs.zeros(spec.observations, 1))

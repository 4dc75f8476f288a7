"""What is run: one frozen description, from which every world makes the same parts."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import jax
import numpy as np

from acme_ext import envs
from acme_ext.builders.base import Agent, Builder
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.errors import UsageError
from acme_ext.launch.runs import feasibility, identity
from acme_ext.launch.runs.schedule import Checkpoints, Evaluation
from acme_ext.types import Array, EnvironmentSpec
from acme_ext.utils.checks import PositiveInt

EnvironmentFactory = Callable[[int, bool], dm_env.Environment]
"""`factory(seed, evaluation) -> dm_env.Environment`, called with both by position."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An agent, an environment and a budget.

    Attributes:
        builder: the agent. Fields that the user has not set are those of its preset for the environment; one that is to
            keep its default in place of the preset is set by `builder.replace(torso=None)`.
        environment: a name, `family:rest` (see `envs.make`), or a picklable factory.
        steps: the run's budget, environment steps of all its actors. A finished run given more goes on.
        seed: of everything that can be seeded.
        num_envs: environments that an actor steps together.
        num_devices: devices that the learner's batch is split over, and in a compiled run the environments.
        environment_options: the family's own, see its module in `acme_ext.envs`; the preset's where they are not set.
        evaluation: when the policy is evaluated, and on how many episodes (`Evaluation`).
        checkpoints: how often the run is saved (`Checkpoints`).
        data: a folder of recorded experience (see `data.format`), or with `?best=SHARE` its episodes of the greatest
            returns, to learn from in place of acting. `steps`, and `every` of `evaluation`, then count learner steps.
        demos: likewise a folder, to learn from beside the run's own experience, with the agent's `replay.demo_ratio`.
        run_dir: where everything is left; by default `runs/AGENT-ENVIRONMENT-sSEED` under the current folder, with what
            of the config and of the environment's options is not their default, as in
            `runs/dqn-gym-CartPole-v1-learning_rate=0.0003-s0`.
    """

    builder: Builder
    environment: str | EnvironmentFactory
    steps: PositiveInt = 50_000
    seed: int = 0
    num_envs: PositiveInt = 1
    num_devices: PositiveInt = 1
    environment_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    run_dir: str | os.PathLike[str] | None = None
    data: str | None = None
    demos: str | None = None

    def __post_init__(self):
        feasibility.check_fields(self)
        object.__setattr__(self, "builder", self.builder.for_environment(self.environment))

    @property
    def step_key(self) -> str:
        """What the run's steps count: `environment_steps`, or `learner_steps` of fixed data."""
        return "environment_steps" if self.data is None else "learner_steps"

    @property
    def options(self) -> Mapping[str, Any]:
        """The environment's options: those of the agent's preset, where the user has not set them."""
        family = self.environment.partition(":")[0] if isinstance(self.environment, str) else ""
        preset = self.builder.preset_for(self.environment).environment
        return {**preset.get(family, {}), **self.environment_options}

    @property
    def environment_name(self) -> str:
        """The environment's name, or its function's."""
        return envs.name_of(self.environment)

    @property
    def directory(self) -> pathlib.Path:
        """The run directory."""
        return identity.usual_directory(self) if self.run_dir is None else pathlib.Path(self.run_dir)

    def describe(self) -> dict[str, Any]:
        """Returns the description as plain JSON; a resumed run must match it in everything but `run`."""
        return identity.describe(self)

    def make_environment(self, num_envs: int, *, evaluation: bool = False, part: int = 0) -> BatchedEnvironment:
        """Returns a batch of the experiment's environments; each `part` of the run has seeds of its own."""
        environment = envs.make(
            self.environment,
            num_envs=num_envs,
            seed=np.random.SeedSequence((self.seed, part)).generate_state(1)[0].item() if part else self.seed,
            evaluation=evaluation,
            **self.options,
        )
        return envs.canonical_actions(environment)

    def make_agent(self, spec: EnvironmentSpec) -> Agent:
        """Returns the builder's agent, with a replay that suits the number of environments."""
        agent = self.builder.make_agent(spec)
        return dataclasses.replace(agent, replay=agent.replay.for_envs(self.num_envs))

    def make_spec(self) -> EnvironmentSpec:
        """Returns the specs of the experiment's environment, which is made to ask it, and closed."""
        with contextlib.closing(self.make_environment(1)) as environment:
            return envs.make_spec(environment)

    def devices(self) -> list[jax.Device] | None:
        """Returns the learner's devices, or None for JAX's default; raises UsageError if there are fewer."""
        if self.num_devices == 1:
            return None
        devices = jax.local_devices()
        if len(devices) < self.num_devices:
            raise UsageError(f"num_devices is {self.num_devices}, and JAX sees {len(devices)} here.")
        return devices[: self.num_devices]

    def key(self, part: str) -> Array:
        """Returns the random key of a part of the run: `learner`, `actor` or `evaluator`."""
        return jax.random.fold_in(jax.random.key(self.seed), ("learner", "actor", "evaluator").index(part))

    def actor_key(self, index: int, start: int) -> Array:
        """Returns the random key of one of a program's actors, which has been started `start` times before."""
        return jax.random.fold_in(jax.random.fold_in(self.key("actor"), index), start)

    def ranks(self, actors: int) -> np.ndarray:
        """Returns the ranks of all exploring environments of a program, actor by actor; see `acting.policy.Context`."""
        count = actors * self.num_envs
        return np.arange(count, dtype=np.float32) / max(1, count - 1)

"""The experiment: a frozen description from which every runner makes the same parts."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Literal

import jax
import numpy as np

from acme_ext import envs
from acme_ext.builders.base import Agent, Builder
from acme_ext.config.types import PositiveInt
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.errors import UsageError
from acme_ext.launch.runs import identity
from acme_ext.launch.runs.experiment_fields import check_experiment_fields
from acme_ext.launch.runs.schedule import Checkpoints, Evaluation
from acme_ext.replay.stores import TableKind, fit, kind_of
from acme_ext.types import Array, EnvironmentSpec
from acme_ext.utils import files


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An agent, an environment and a budget.

    Attributes:
        builder: the agent. Fields that the user has not set come from its preset for the environment. To keep a field's
            default instead of the preset's value, set the field explicitly: `builder.replace(torso=None)`.
        environment: a name, `family:rest` (see `envs.make`), or a picklable factory.
        steps: the run's budget: environment steps, summed over all actors. A finished run continues if it is given
            more.
        seed: seeds the agent, the environments and the sampling of recorded data.
        num_envs: environments that each actor steps in parallel.
        num_devices: devices that the learner's batch is split over; a compiled run also splits its environments.
        environment_options: options of the environment's family, see its module in `acme_ext.envs`. Options that are
            not set come from the preset.
        evaluation: when the policy is evaluated, and on how many episodes (`Evaluation`).
        checkpoints: how often the run is saved (`Checkpoints`).
        data: a folder of recorded experience to learn from, without acting (see `data.format`). With `?best=SHARE`,
            only this share of its episodes is used, those with the highest returns. `steps`, and `every` of
            `evaluation`, then count learner steps.
        demos: a folder of demonstrations, in the same form. The run learns from them and from its own experience; the
            agent's `replay.demo_ratio` sets their share.
        table: where the replay's items are stored: `reverb`, in Reverb; `embedded`, in a table of this package, which
            runs on any Python, and with which a run in one process is determined by its seed; `auto`, in Reverb where
            it is installed. Compiled runs and runs on recorded data have no such table.
        run_dir: the folder for all files of the run. The default is `runs/AGENT-ENVIRONMENT-sSEED` in the current
            folder. Its name includes the settings and environment options that differ from their defaults, as in
            `runs/dqn-gym-CartPole-v1-learning_rate=0.0003-s0`.
    """

    builder: Builder
    environment: str | envs.Factory
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
    table: Literal["auto", "embedded", "reverb"] = "auto"

    def __post_init__(self):
        check_experiment_fields(self)
        object.__setattr__(self, "builder", self.builder.for_environment(self.environment))

    @property
    def step_key(self) -> str:
        """The unit of the run's steps: `environment_steps`, or `learner_steps` for a run on recorded data."""
        return "environment_steps" if self.data is None else "learner_steps"

    @property
    def table_kind(self) -> TableKind:
        """The kind of the replay's table; raises UsageError if it is not installed here."""
        return kind_of(self.table)

    @property
    def options(self) -> Mapping[str, Any]:
        """The environment's options: the agent's preset, updated with the options that the user has set."""
        family = self.environment.partition(":")[0] if isinstance(self.environment, str) else ""
        preset = self.builder.preset_for(self.environment).environment
        return {**preset.get(family, {}), **self.environment_options}

    @property
    def environment_name(self) -> str:
        """The environment's name, or the name of its factory function."""
        return envs.name_of(self.environment)

    @property
    def directory(self) -> pathlib.Path:
        """The run directory."""
        return identity.usual_directory(self) if self.run_dir is None else files.expanded(self.run_dir)

    def describe(self) -> dict[str, Any]:
        """Returns the experiment as plain JSON; a resumed run must match all of it except `run`."""
        return identity.describe_experiment(self)

    def make_environment(self, num_envs: int, *, evaluation: bool = False, part: int = 0) -> BatchedEnvironment:
        """Returns a batch of the experiment's environments; each `part` of the run has different seeds."""
        environment = envs.make(
            self.environment,
            num_envs=num_envs,
            seed=np.random.SeedSequence((self.seed, part)).generate_state(1)[0].item() if part else self.seed,
            evaluation=evaluation,
            **self.options,
        )
        return envs.canonical_actions(environment)

    def make_agent(self, spec: EnvironmentSpec) -> Agent:
        """Returns the builder's agent, with a replay for this number of environments."""
        agent = self.builder.make_agent(spec)
        return dataclasses.replace(agent, replay=fit(agent.replay.for_envs(self.num_envs), self.table_kind))

    def make_spec(self) -> EnvironmentSpec:
        """Creates an environment to read its specs, closes it, and returns the specs."""
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
        """Returns the random key for one part of the run: `learner`, `actor` or `evaluator`."""
        return jax.random.fold_in(jax.random.key(self.seed), ("learner", "actor", "evaluator").index(part))

    def actor_key(self, index: int, start: int) -> Array:
        """Returns the random key for a program's actor number `index`, which has been started `start` times before."""
        return jax.random.fold_in(jax.random.fold_in(self.key("actor"), index), start)

    def ranks(self, actors: int) -> np.ndarray:
        """Returns the ranks of all exploring environments of a program, actor by actor; see `acting.policy.Context`."""
        count = actors * self.num_envs
        return np.arange(count, dtype=np.float32) / max(1, count - 1)

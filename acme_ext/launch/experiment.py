"""What is run: one frozen description, from which every world makes the same parts."""

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import jax
import numpy as np

from acme_ext import __version__, envs
from acme_ext.builders.base import Builder
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.errors import UsageError
from acme_ext.types import Array, EnvironmentSpec

EnvironmentFactory = Callable[[int, bool], dm_env.Environment]
"""`factory(seed, evaluation) -> dm_env.Environment`, called with both by position."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """When and how long the agent is evaluated, on environments of its own, acting as it does in evaluation."""

    every: int = 5_000  # environment steps between evaluations; 0: only at the end
    episodes: int = 10  # of an evaluation on the way
    final_episodes: int = 20  # of the one at the end
    num_envs: int = 10  # environments stepped together; no more than episodes are made

    def __post_init__(self):
        for name, least in (("every", 0), ("episodes", 1), ("final_episodes", 1), ("num_envs", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"evaluation.{name} is {getattr(self, name)}: it must be at least {least}.")


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """When a run saves itself; it always does at its end."""

    every_s: float = 60.0  # seconds between checkpoints; 0: only at the end
    keep: int = 2  # checkpoints kept
    replay: bool = True  # whether the replay's contents are part of it

    def __post_init__(self):
        if not self.every_s >= 0:
            raise UsageError(f"checkpoints.every_s is {self.every_s}: it must be a number of seconds, at least 0.")
        if self.keep < 1:
            raise UsageError(f"checkpoints.keep is {self.keep}: at least 1 must be kept.")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An agent, an environment and a budget.

    Attributes:
        builder: the agent.
        environment: a name, `family:rest` (see `envs.make`), or a picklable factory.
        steps: the run's budget, environment steps of all its actors. A finished run given more goes on.
        seed: of everything that can be seeded.
        num_envs: environments that an actor steps together.
        num_devices: devices that the learner's batch is split over.
        environment_options: the family's own, see its module in `acme_ext.envs`.
        evaluation, checkpoints: see there.
        run_dir: where everything is left; by default `runs/AGENT-ENVIRONMENT-sSEED` under the current folder.
    """

    builder: Builder
    environment: str | EnvironmentFactory
    steps: int = 50_000
    seed: int = 0
    num_envs: int = 1
    num_devices: int = 1
    environment_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    run_dir: str | None = None

    def __post_init__(self):
        for name in ("steps", "num_envs", "num_devices"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: it must be at least 1.")
        if not 0 <= self.seed < 2**31:
            raise UsageError(f"seed is {self.seed}: it must lie in [0, 2**31).")

    @property
    def environment_name(self) -> str:
        """The environment's name, or its factory's."""
        if isinstance(self.environment, str):
            return self.environment
        return getattr(self.environment, "__qualname__", type(self.environment).__name__)

    @property
    def directory(self) -> pathlib.Path:
        """The run directory."""
        if self.run_dir is not None:
            return pathlib.Path(self.run_dir)
        name = f"{self.builder.name}-{self.environment_name}-s{self.seed}"
        return pathlib.Path("runs") / re.sub(r"[^\w.-]+", "-", name)

    def describe(self) -> dict[str, Any]:
        """Returns the description as plain JSON; a resumed run must match it in everything but `run`."""
        return {
            "agent": self.builder.name,
            "environment": self.environment_name,
            "environment_options": dict(self.environment_options),
            "seed": self.seed,
            "num_envs": self.num_envs,
            "config": _plain(self.builder.config),
            "run": {
                "version": __version__,
                "steps": self.steps,
                "evaluation": _plain(self.evaluation),
                "checkpoints": _plain(self.checkpoints),
            },
        }

    def make_environment(self, num_envs: int, *, evaluation: bool = False, part: int = 0) -> BatchedEnvironment:
        """Returns a batch of the experiment's environments; each `part` of the run has seeds of its own."""
        return envs.make(
            self.environment,
            num_envs=num_envs,
            seed=np.random.SeedSequence((self.seed, part)).generate_state(1)[0].item() if part else self.seed,
            evaluation=evaluation,
            **self.environment_options,
        )

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


def check(experiment: Experiment, spec: EnvironmentSpec) -> None:
    """Raises UsageError if the agent can't act in the environment or its replay could never work; makes nothing."""
    experiment.builder.make_replay(spec)
    experiment.builder.make_policy(spec)
    if (fused := experiment.builder.sgd_steps_per_call) < 1:
        raise UsageError(f"sgd_steps_per_call is {fused}: it must be at least 1.")


def _plain(config: Any) -> Any:
    """Turns a config into JSON's types."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, Mapping):
        return {str(name): _plain(value) for name, value in config.items()}
    if isinstance(config, list | tuple):
        return [_plain(value) for value in config]
    if config is None or isinstance(config, bool | int | float | str):
        return config
    return getattr(config, "__qualname__", repr(config))

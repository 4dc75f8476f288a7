"""What is run: one frozen description, from which every world makes the same parts."""

import bisect
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import jax
import numpy as np

from acme_ext import __version__, builders, envs
from acme_ext.builders.base import Agent, Builder
from acme_ext.data.format import Folder
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.errors import UsageError
from acme_ext.types import Array, EnvironmentSpec
from acme_ext.utils import checks, naming
from acme_ext.utils.rundir import ABSENT, flatten

_LONGEST = 80  # characters of a run directory's name that say what was chosen

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
        checks.types(self, "evaluation.")
        for name, least in (("every", 0), ("episodes", 1), ("final_episodes", 1), ("num_envs", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"evaluation.{name} is {getattr(self, name)}: it must be at least {least}.")


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """When a run saves itself; it always does at its end."""

    every_s: float = 60.0  # seconds between checkpoints; 0: only at the end
    keep: int = 2  # checkpoints kept
    replay: bool = True  # whether the replay's contents are part of it
    replay_every_s: float = 0.0  # least seconds from one time that these are written to the next; 0: each time

    def __post_init__(self):
        checks.types(self, "checkpoints.")
        for name in ("every_s", "replay_every_s"):
            if not (value := getattr(self, name)) >= 0:
                raise UsageError(f"checkpoints.{name} is {value}: it must be a number of seconds, at least 0.")
        if self.keep < 1:
            raise UsageError(f"checkpoints.keep is {self.keep}: at least 1 must be kept.")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An agent, an environment and a budget.

    Attributes:
        builder: the agent. Fields that the user has not set are those of its preset for the environment.
        environment: a name, `family:rest` (see `envs.make`), or a picklable factory.
        steps: the run's budget, environment steps of all its actors. A finished run given more goes on.
        seed: of everything that can be seeded.
        num_envs: environments that an actor steps together.
        num_devices: devices that the learner's batch is split over, and in a compiled run the environments.
        environment_options: the family's own, see its module in `acme_ext.envs`; the preset's where they are not set.
        evaluation, checkpoints: see there.
        data: a folder of recorded experience (see `data.format`), or with `?best=SHARE` its episodes of the greatest
            returns, to learn from in place of acting. `steps`, and `every` of `evaluation`, then count learner steps.
        demos: likewise a folder, to learn from beside the run's own experience, with the agent's `replay.demo_ratio`.
        run_dir: where everything is left; by default `runs/AGENT-ENVIRONMENT-sSEED` under the current folder, with what
            of the config and of the environment's options is not their default, as in
            `runs/dqn-gym-CartPole-v1-learning_rate=0.0003-s0`.
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
    run_dir: str | os.PathLike[str] | None = None
    data: str | None = None
    demos: str | None = None

    def __post_init__(self):
        if isinstance(self.builder, type):
            name = self.builder.__name__
            raise UsageError(f"builder is the class {name}: give an object of it, {name}().")
        if not isinstance(self.builder, Builder):
            raise UsageError(
                f"builder is a {type(self.builder).__name__}: it must be a Builder, such as acme_ext.builders.DQN()."
            )
        envs.check_factory(self.environment)
        checks.types(self)
        for name in ("steps", "num_envs", "num_devices"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: it must be at least 1.")
        if not 0 <= self.seed < 2**31:
            raise UsageError(f"seed is {self.seed}: it must lie in [0, 2**31).")
        if self.data is not None and self.demos is not None:
            raise UsageError("a run on recorded data has no experience of its own beside demonstrations: give one.")
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
        if self.run_dir is not None:
            return pathlib.Path(self.run_dir)
        where = self.environment_name if self.data is None else f"data-{pathlib.Path(self.data).name}"
        demos = [] if self.demos is None else [f"demos-{pathlib.Path(self.demos).name}"]
        parts = [self.builder.name, where, *self._choices(), *demos, f"s{self.seed}"]
        return pathlib.Path("runs") / re.sub(r"[^\w.=+-]+", "-", "-".join(parts))

    def _choices(self) -> list[str]:
        """Returns `name=value` for each field of the agent that is not its default for the environment, and for each
        option of the environment; of many, the first and a digest of all.
        """
        chosen = flatten(dict(self.environment_options))
        try:
            make: Any = type(self.builder)
            usual = _describe_builder(make().for_environment(self.environment))
        except TypeError:  # of one's own, whose fields have no defaults
            pass
        else:
            fields = _describe_builder(self.builder)
            chosen |= {name: value for name, value in fields.items() if usual.get(name, ABSENT) != value}
        texts = [f"{name.removeprefix('config.')}={_short(value)}" for name, value in chosen.items()]
        if len("-".join(texts)) <= _LONGEST:
            return texts
        digest = hashlib.sha256("-".join(texts).encode()).hexdigest()[:8]
        shown = [text for i, text in enumerate(texts) if len("-".join(texts[: i + 1])) <= _LONGEST // 2]
        return [*shown, f"{len(texts) - len(shown)}more", digest]

    def describe(self) -> dict[str, Any]:
        """Returns the description as plain JSON; a resumed run must match it in everything but `run`."""
        builder = naming.describe(self.builder, "the agent")
        return {
            **self._describe_recorded(),
            "agent": builders.name_of(type(self.builder)),
            "environment": self._describe_environment(),
            "environment_options": dict(self.options),
            "seed": self.seed,
            "num_envs": self.num_envs,
            "builder": {name: value for name, value in builder.items() if name != "config"},
            "config": builder["config"],
            "run": {
                "version": __version__,
                "steps": self.steps,
                "evaluation": dataclasses.asdict(self.evaluation),
                "checkpoints": dataclasses.asdict(self.checkpoints),
            },
        }

    def _describe_recorded(self) -> dict[str, Any]:
        described = {}
        for name, given in (("data", self.data), ("demos", self.demos)):
            if given is not None:
                folder, best = split_data(given)
                described[name] = {"sha256": Folder(folder).digest, "best": best}
        return described

    def _describe_environment(self) -> Any:
        """Returns the environment in JSON's types: its name, or `py:module:name` of its function."""
        if isinstance(self.environment, str):
            return self.environment
        described = naming.describe(self.environment, "the environment")
        return f"py:{described}" if isinstance(described, str) else described

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


def about(experiment: Experiment, **more: Any) -> dict[str, Any]:
    """Returns what recorded data says of the run that it came from, plain JSON."""
    described = experiment.describe()
    names = ("environment", "environment_options", "agent", "config", "seed")
    return {**{name: described[name] for name in names}, **more}


def split_data(data: str) -> tuple[str, float]:
    """Returns the folder of `Experiment.data` and the share of its episodes that is learned from."""
    folder, _, option = data.partition("?")
    name, _, value = option.partition("=")
    try:
        share = float(value) if option else 1.0
    except ValueError:
        share = 0.0
    if (option and name != "best") or not 0 < share <= 1:
        raise UsageError(f"{data!r}: the one option of data is best=SHARE, a share of its episodes in (0, 1].")
    return folder, share


def check(experiment: Experiment, spec: EnvironmentSpec) -> None:
    """Raises UsageError if the agent can't act in the environment, its networks don't fit, or its replay could never
    work; computes nothing.
    """
    agent = experiment.make_agent(spec)
    agent.core.abstract_state()
    if agent.replay.prioritized and not agent.core.gives_errors(agent.replay.example(2), 2):
        raise UsageError(
            f"{type(experiment.builder).__name__} gives no TD errors for priorities, so that its replay can't be "
            "prioritized: leave replay.prioritized false."
        )


def _describe_builder(builder: Builder) -> dict[str, Any]:
    """Returns the fields of a builder and of its config in one flat mapping, by dotted name."""
    described = naming.describe(builder, "the agent")
    return flatten({**described.pop("config"), **described})


def _short(value: Any) -> str:
    """Returns a value as a part of a file's name: 64x64, true, 0.0003."""
    if isinstance(value, list):
        return "x".join(map(_short, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


NOTHING_LEARNED = (
    "warning: nothing was learned, because the replay never held enough for the learner's first batch: give the run "
    "more steps, or the agent a smaller replay.min_size or batch_size."
)
"""What is said at the end of a run whose learner has made no step."""


def foresee(experiment: Experiment, spec: EnvironmentSpec) -> str | None:
    """Returns a warning for a run that is sure to learn nothing, because its replay can't have enough for the learner's
    first batch; None for any other.
    """
    agent = experiment.make_agent(spec)
    replay = agent.replay
    batch = replay.batch_size * agent.sgd_steps_per_call
    if replay.samples_allowed(experiment.steps) >= batch:  # a step gives one item at most
        return None
    needed = bisect.bisect_left(range(2**40), batch, key=replay.samples_allowed)
    return (
        f"warning: nothing will be learned: the replay gives the learner its first batch once it has had {needed:,} "
        f"items, and the run has {experiment.steps:,} steps: give the run more, or the agent a smaller replay.min_size "
        "or batch_size."
    )

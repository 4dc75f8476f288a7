"""Where the parts of a run are executed: values for `launch.run(..., on=...)`. Which options exclude each other stands
here.
"""

import dataclasses
import math
import numbers
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from acme_ext.config.fields import check_fields
from acme_ext.config.types import NonNegative, NonNegativeInt, PositiveInt
from acme_ext.errors import UsageError, nearest
from acme_ext.launch.roles import ROLES, role_of
from acme_ext.utils.rundir import RunDirectory

if TYPE_CHECKING:
    from acme.utils.observers import EnvLoopObserver

    from acme_ext.launch.runs.evaluation import Result
    from acme_ext.launch.runs.experiment import Experiment

_COMPUTING = tuple(name for name, role in ROLES.items() if role.computes)
_MOST_COMPILED_STEPS = 2_000_000_000  # steps are counted as int32, and the last call may make a few more


class Handles(NamedTuple):
    """Handles of a program's parts, for your own nodes; in a node, each becomes a client."""

    learner: Any
    """`get_variables(["policy"]) -> [parameters]` returns the agent's policy parameters, as in Acme's
    `VariableSource`."""
    coordinator: Any
    """`snapshot() -> dict` returns the program's state, with the total counts so far in `counts`; `request_stop()`
    stops the program after a last save."""
    replays: Sequence[Any]
    """A `replay.table.Table` for each shard."""


Extend = Callable[[Any, Handles], None]
"""A function that adds your own nodes to a program, in groups with new names."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of a run that don't depend on where it is executed; see `launch.run`."""

    fresh: bool = False
    quiet: bool = False
    record: str | os.PathLike[str] | None = None
    snapshot_every: PositiveInt | None = None
    skip_damaged: bool = False
    exact: bool = False

    def __post_init__(self):
        check_fields(self)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the parts of a run are executed."""

    def __post_init__(self):
        check_fields(self)

    @property
    def arrangement(self) -> Mapping[str, Any]:
        """What a resumed run must match besides the experiment, as entries of `config.json`."""
        return {}

    def directory(self, experiment: "Experiment") -> pathlib.Path:
        """Returns the folder of a run's files."""
        return experiment.directory

    def experiments(self, experiment: "Experiment") -> "list[Experiment]":
        """Returns the experiments that a run consists of: one, or one for each seed."""
        return [experiment]

    def together(self, experiment: "Experiment", results: "Sequence[Result]") -> "Result":
        """Returns the result of a run from those of its experiments."""
        return results[0]

    def check(self, experiment: "Experiment", options: RunOptions) -> None:
        """Raises UsageError if an experiment or the options of its run are not for this placement."""
        if experiment.data is not None and options.record is not None:
            raise UsageError("a run on recorded data does not act: there is nothing to record.")
        if experiment.data is None and experiment.demos is None and options.skip_damaged:
            raise UsageError("this run uses no recorded data, so there are no damaged parts to leave out.")
        if experiment.data is not None and experiment.table != "auto":
            raise UsageError(
                f"a run on recorded data has no replay to write to: table {experiment.table!r} has no meaning."
            )
        if options.exact and not experiment.checkpoints.steps:
            raise UsageError("exact needs checkpoints that are scheduled by steps: give --checkpoint-steps N.")


@dataclasses.dataclass(frozen=True)
class InProcess(Placement):
    """In this process: acting and learning in turn, at the ratio of the replay's rate limit.

    Attributes:
        profile: measures how the run spends its time after compilation. Prints the shares, and writes them and a trace
            to the run directory, as `profile.txt` and `trace.json`.
        observers: a function that returns Acme observers for the i-th training environment. Their metrics are added to
            the actor's log.
    """

    profile: bool = False
    observers: 'Callable[[int], Sequence["EnvLoopObserver"]] | None' = None

    def check(self, experiment: "Experiment", options: RunOptions) -> None:
        super().check(experiment, options)
        if experiment.data is not None and (self.profile or self.observers):
            raise UsageError("a run on recorded data does not act: there is nothing to observe or to profile.")
        checkpoints = experiment.checkpoints
        if experiment.data is None and checkpoints.steps:
            if experiment.table_kind != "embedded":
                raise UsageError(
                    "checkpoints.steps needs the embedded table, because Reverb draws other items after a resume: give "
                    "--table embedded."
                )
            if not checkpoints.replay or checkpoints.replay_every_s:
                raise UsageError(
                    "checkpoints.steps needs the replay's contents in every checkpoint (replay_every_s=0)."
                )


@dataclasses.dataclass(frozen=True)
class Compiled(Placement):
    """As one compiled program: environments written in JAX, acting, replay and learning (Hessel et al. 2021, Anakin).

    Attributes:
        seeds: the number of seeds to run together: the experiment's seed and those that follow it. With more than one,
            each seed N has its own run directory `sN` in the experiment's, and `curve.png` there shows all of them.
    """

    seeds: PositiveInt = 1

    @property
    def arrangement(self) -> Mapping[str, Any]:
        return {"world": "compiled"}

    def directory(self, experiment: "Experiment") -> pathlib.Path:
        if self.seeds == 1 or experiment.run_dir is not None:
            return experiment.directory
        usual = experiment.directory
        return usual.with_name(f"{usual.name}-to-s{experiment.seed + self.seeds - 1}")

    def experiments(self, experiment: "Experiment") -> "list[Experiment]":
        if self.seeds == 1:
            return [experiment]
        root = self.directory(experiment)
        return [
            dataclasses.replace(experiment, seed=seed, run_dir=os.fspath(root / f"s{seed}"))
            for seed in range(experiment.seed, experiment.seed + self.seeds)
        ]

    def together(self, experiment: "Experiment", results: "Sequence[Result]") -> "Result":
        all_seeds = dataclasses.replace(
            results[0],
            run_dir=self.directory(experiment),
            environment_steps=sum(result.environment_steps for result in results),
            learner_steps=sum(result.learner_steps for result in results),
            seeds=tuple(results),
        )
        scores = [result.score for result in results if result.score is not None]
        if self.seeds == 1 or not scores:
            return all_seeds
        from acme_ext.utils import plots

        label = f"{experiment.builder.name} on {experiment.environment_name}"
        rundirs = [RunDirectory.open(result.run_dir) for result in results]
        curve = plots.learning_curves({label: rundirs}, all_seeds.run_dir / "curve.png", experiment.step_key)
        return dataclasses.replace(all_seeds, score=scores[0].joined(scores[1:]), curve=curve)

    def check(self, experiment: "Experiment", options: RunOptions) -> None:
        if experiment.data is not None:
            raise UsageError("a run on recorded data has no environment to compile: run it without --on compiled.")
        if experiment.demos is not None:
            raise UsageError("compiled runs can't mix demonstrations into their replay: use only one of the two.")
        super().check(experiment, options)
        if options.record is not None:
            raise UsageError("a compiled run can't record its episodes: run it without --on compiled.")
        if experiment.table != "auto":
            raise UsageError(f"a compiled run's replay is on the device: table {experiment.table!r} has no meaning.")
        if experiment.seed + self.seeds > 2**31:
            raise UsageError(f"seeds is {self.seeds}: all seeds must be in [0, 2**31).")
        root = self.directory(experiment)
        if self.seeds > 1 and root.is_dir() and RunDirectory(root).exists_run():
            raise UsageError(
                f"{root} holds a run of one seed: choose another directory for the {self.seeds} seeds' runs."
            )
        if experiment.steps > _MOST_COMPILED_STEPS:
            raise UsageError(f"steps is {experiment.steps}: a compiled run can make at most {_MOST_COMPILED_STEPS}.")
        if experiment.checkpoints.replay_every_s:
            raise UsageError(
                "a compiled run saves its replay with every checkpoint: leave checkpoints.replay_every_s "
                "(--replay-every) at 0."
            )


@dataclasses.dataclass(frozen=True)
class Program(Placement):
    """As a program of several nodes; `Processes`, `Threads` and `Ray` say where they are.

    Each actor has the experiment's `num_envs` environments.

    Attributes:
        actors: nodes that step environments. 0 for a run on recorded data, which has only a learner and evaluators,
            and no replay. None: 4, or 0 for recorded data.
        replay_shards: Reverb servers that the replay is split over; actors are assigned to them in turn.
        evaluators: nodes that evaluate. A free evaluator takes the next evaluation, so several evaluators are useful if
            an evaluation takes longer than the time between two.
        inference: where the policy is applied: in each `actor`, which then holds the parameters, or in the inference
            `server`, so that actors only step their environments.
        experience: which node writes the experience to the replay: the `actor`, or the inference `server`.
        inference_servers: number of inference servers, if `inference` is `server`; actor i uses server number
            `i % inference_servers`. None: one.
        grace_s: seconds that nodes get to end by themselves when they are told to stop. Nodes that no other node calls
            stop first, then each kind of server. Nodes that exceed the time are killed. 0 kills them at once, infinity
            never. None: 1 s, or 5 s on threads, which can't be killed and are left running.
        extend: adds your own nodes. `extend(program, handles)` calls `program.add_node` in groups with new names, and
            may use the program's parts, see `launch.Handles`. It may be called more than once. The nodes are treated
            like actors: if one raises an error, it is restarted (`restarts`), or the program ends after a last save.
            They are told to stop (`lp.wait_for_stop`) before the nodes that they call. In such a node, `lp.stop()` or
            the function from `lp.make_program_stopper` ends the program after a last save, as SIGTERM does. On Ray
            each node asks for one CPU.
    """

    actors: int | None = None
    replay_shards: PositiveInt = 1
    evaluators: PositiveInt = 1
    inference: Literal["actor", "server"] = "actor"
    experience: Literal["actor", "server"] = "actor"
    inference_servers: PositiveInt | None = None
    grace_s: NonNegative | None = dataclasses.field(default=None, kw_only=True)
    extend: Extend | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        if self.actors is not None and self.actors < 0:
            raise UsageError(f"actors is {self.actors}: a program needs at least 1 actor.")
        if self.actors == 0 and (self.replay_shards, self.inference) != (1, "actor"):
            raise UsageError("a program without actors has neither replay shards nor an inference server.")
        if self.replay_shards > max(1, self.num_actors):
            raise UsageError(
                f"{self.replay_shards} replay shards need as many actors to write to them, and there are "
                f"{self.num_actors}."
            )
        if self.experience == "server" and self.inference == "actor":
            raise UsageError("experience on the server needs inference on the server.")
        if self.inference_servers is not None:
            if self.inference == "actor":
                raise UsageError(
                    f"inference_servers is {self.inference_servers}: that needs inference on the server, and it is on "
                    "the actors."
                )
            if self.inference_servers > self.num_actors:
                raise UsageError(
                    f"{self.inference_servers} inference servers need as many actors to ask them, and there are "
                    f"{self.num_actors}."
                )

    def check(self, experiment: "Experiment", options: RunOptions) -> None:
        super().check(experiment, options)
        if (experiment.data is None) != bool(self.for_run(experiment).num_actors):
            raise UsageError(
                "a program needs at least 1 actor."
                if experiment.data is None
                else "a run on recorded data has no actors: leave actors out."
            )
        if experiment.checkpoints.steps:
            raise UsageError(
                "checkpoints.steps is for runs in one process, on recorded data or compiled: the order of what a "
                "program's nodes do is not determined."
            )

    def for_run(self, experiment: "Experiment") -> "Program":
        """Returns this placement with the number of actors that an experiment gets if none is given."""
        if self.actors is None and experiment.data is not None:
            return dataclasses.replace(self, actors=0)
        return self

    @property
    def num_actors(self) -> int:
        """The number of actors; 4 if none is given."""
        return 4 if self.actors is None else self.actors

    @property
    def groups(self) -> dict[str, int]:
        """The groups of the program, each with its number of nodes."""
        if not self.num_actors:
            return {"coordinator": 1, "learner": 1, "evaluator": self.evaluators}
        inference = {"inference": self.inference_servers or 1} if self.inference == "server" else {}
        fixed = {"replay": self.replay_shards, "coordinator": 1, "learner": 1, "evaluator": self.evaluators}
        return {**fixed, **inference, "actor": self.num_actors}

    @property
    def arrangement(self) -> Mapping[str, Any]:
        # A resumed run needs as many actors (their numbers are in the seeds) and shards (each has a folder in
        # checkpoints).
        if not self.num_actors:
            return {}
        return {"program": {"actors": self.num_actors, "replay_shards": self.replay_shards}}


@dataclasses.dataclass(frozen=True)
class Threads(Program):
    """As a program whose nodes are threads of this process, which are never restarted."""


@dataclasses.dataclass(frozen=True)
class ProcessProgram(Program):
    """A program whose nodes are processes.

    Attributes:
        accelerated: groups of nodes that can use GPUs or other accelerators: `learner`, `inference`, `evaluator` or
            `actor`. All other nodes compute on the CPU.
        resources: the resources that each node of a group asks for, such as `{"learner": {"GPU": 1, "CPU": 4}}`: `CPU`,
            `GPU`, or on Ray a custom resource of the hosts. On Ray, the default is one CPU; of the groups in
            `accelerated`, only those that ask for GPUs use them; and actors and evaluators use as many threads as CPUs.
            As processes of one machine, nodes see the GPUs that they ask for, or all GPUs if no group asks for any, and
            nodes that ask for CPUs use as many threads.
        restarts: how often per hour actors, evaluators and inference servers are restarted when they die. The first
            restart is immediate. If a node dies again within a minute, the delay is 1 s, then 2 s and so on up to 60 s.
            When another node dies, or a lost host had nodes that can't be restarted alone, the whole program restarts
            from its last checkpoint; that counts as one restart.
        private: hides the program's ports from the network, if the kernel permits it (on Ray, of a Ray that is started
            for this run).
    """

    accelerated: tuple[str, ...] = dataclasses.field(default=("learner", "inference"), kw_only=True)
    resources: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict, kw_only=True)
    restarts: NonNegativeInt = dataclasses.field(default=0, kw_only=True)
    private: bool = dataclasses.field(default=True, kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        for group in self.accelerated:
            if group not in _COMPUTING:
                raise UsageError(f"accelerated has {group!r}: only {', '.join(_COMPUTING)} can be given accelerators.")
        for group, asked in self.resources.items():
            if group not in self.groups:
                raise UsageError(f"resources are asked for {group!r}: {nearest(str(group), self.groups)}")
            if not isinstance(asked, Mapping):
                raise UsageError(f"resources of {group} are {asked!r}: give a mapping, such as {{'CPU': 2}}.")
            for name, amount in asked.items():
                if not name:
                    raise UsageError(f"{group} asks for a resource without a name.")
                number = isinstance(amount, numbers.Real) and 0 < amount < math.inf
                if not number or (amount > 1 and amount != int(amount)):
                    raise UsageError(
                        f"{group} asks for {amount!r} {name}: it must be a number above 0, and whole if above 1."
                    )
            if "GPU" in asked and group not in self.accelerated:
                raise UsageError(
                    f"{group} asks for a GPU and is not among the accelerated: {', '.join(self.accelerated)}."
                )

    @property
    def all_resources(self) -> dict[str, dict[str, float]]:
        """The resources that each node of every group asks Ray for."""
        return {group: {"CPU": role_of(group).cpus, **self.resources.get(group, {})} for group in self.groups}

    @property
    def accelerated_here(self) -> tuple[str, ...]:
        """The groups of this program that can use accelerators."""
        return tuple(group for group in self.accelerated if group in self.groups)


@dataclasses.dataclass(frozen=True)
class Processes(ProcessProgram):
    """As a program whose nodes are processes of this machine."""


@dataclasses.dataclass(frozen=True)
class Ray(ProcessProgram):
    """As a program whose nodes run on the hosts of a Ray cluster.

    Attributes:
        address: the address of a cluster that this machine belongs to; `auto` for one that runs here; `local` to
            start Ray on this machine for this run only. None: the variable `RAY_ADDRESS`, or else `local`.
        wait_s: seconds to wait for a cluster to have room for all nodes; after that, nothing is started. None: 30 s
            if other jobs use the missing resources, and no wait if the cluster doesn't have enough in total.
        runtime_env: Ray's runtime environment for the program's processes on every host, as `ray.init` takes it:
            `{"env_vars": ..., "pip": ..., "working_dir": ...}`. The current working directory is copied to the hosts
            unless another is given.
    """

    address: str | None = dataclasses.field(default=None, kw_only=True)
    wait_s: NonNegative | None = dataclasses.field(default=None, kw_only=True)
    runtime_env: Mapping[str, Any] | None = dataclasses.field(default=None, kw_only=True)


PROGRAMS: Mapping[str, type[Program]] = {"processes": Processes, "threads": Threads, "ray": Ray}
"""The kinds of programs, by their names on the command line (`--on`)."""

"""An experiment as a Launchpad program.

actors --rows--> replay shards --batches--> learner --parameters--> actors, evaluators
   |                  ^----- priorities -------|                         |
   +------------------------- reports to the coordinator ----------------+
"""

import dataclasses
import functools
import math
import numbers
import os
import pathlib
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import launchpad as lp

from acme_ext.config.fields import check_fields
from acme_ext.config.types import PositiveInt
from acme_ext.data.recorder import part_of
from acme_ext.errors import UsageError, nearest
from acme_ext.launch.runners import devices, offline
from acme_ext.launch.runners.nodes.actor import ActorNode, callers_of
from acme_ext.launch.runners.nodes.coordinator import Coordinator
from acme_ext.launch.runners.nodes.evaluator import EvaluatorNode
from acme_ext.launch.runners.nodes.inference import InferenceNode
from acme_ext.launch.runners.nodes.learner import LearnerCourierNode, LearnerNode
from acme_ext.launch.runners.nodes.replay import ReplayNode, shard_folder
from acme_ext.launch.runs import demonstrations
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.feasibility import check, foresee
from acme_ext.launch.runs.store import RunCheckpoints, check_directory, prepare, recorded_to, replay_folder
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import proxies
from acme_ext.utils.calls import TOKEN_BYTES


class Handles(NamedTuple):
    """Launchpad handles of a program's parts, for your own nodes; in a node, each becomes a client."""

    learner: Any
    """`get_variables(["policy"]) -> [parameters]` returns the agent's policy parameters, as in Acme's
    `VariableSource`."""
    coordinator: Any
    """`snapshot() -> dict` returns the program's state, with the total counts so far in `counts`; `request_stop()`
    stops the program after a last save."""
    replays: Sequence[Any]
    """A `reverb.Client` for each shard."""


Extend = Callable[[lp.Program, Handles], None]
"""A function that adds your own nodes to a program, in groups with new names."""

SERVERS = ("inference", "learner", "replay", "coordinator")
"""Groups of nodes that other nodes call, in the order in which they are stopped, after all other groups."""


_GROUPS = (*SERVERS, "evaluator", "actor")
_COMPUTING = ("learner", "inference", "evaluator", "actor")
_RESOURCES = {"coordinator": {"CPU": 0.1}}  # a node's default resources on Ray; for all other groups one CPU


@dataclasses.dataclass(frozen=True)
class Topology:
    """How many nodes a program has, and where they compute. Each actor has the experiment's `num_envs` environments.

    Attributes:
        actors: processes (or threads) that step environments. 0 for a run on recorded data, which has only a learner
            and evaluators, and no replay.
        replay_shards: Reverb servers that the replay is split over; actors are assigned to them in turn.
        evaluators: nodes that evaluate. A free evaluator takes the next evaluation, so several evaluators are useful if
            an evaluation takes longer than the time between two.
        accelerated: groups of nodes that can use GPUs or other accelerators: `learner`, `inference`, `evaluator` or
            `actor`. All other nodes compute on the CPU.
        inference: where the policy is applied: in each `actor`, which then holds the parameters, or in the inference
            `server`, so that actors only step their environments.
        experience: which node writes the experience to the replay: the `actor`, or the inference `server`.
        resources: the resources that each node of a group asks for, such as `{"learner": {"GPU": 1, "CPU": 4}}`: `CPU`,
            `GPU`, or on Ray a custom resource of the hosts. On Ray, the default is one CPU; of the groups in
            `accelerated`, only those that ask for GPUs use them; and actors and evaluators use as many threads as CPUs.
            As processes of one machine, nodes see the GPUs that they ask for, or all GPUs if no group asks for any, and
            nodes that ask for CPUs use as many threads.
        inference_servers: number of inference servers, if `inference` is `server`; actor i uses server number
            `i % inference_servers`. None: one.
    """

    actors: int = 4
    replay_shards: int = 1
    evaluators: int = 1
    accelerated: tuple[str, ...] = ("learner", "inference")
    inference: Literal["actor", "server"] = "actor"
    experience: Literal["actor", "server"] = "actor"
    resources: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    inference_servers: PositiveInt | None = None

    def __post_init__(self):
        check_fields(self)
        if self.actors < 0 or min(self.replay_shards, self.evaluators) < 1:
            raise UsageError("a program needs at least 1 actor, 1 replay shard and 1 evaluator.")
        if not self.actors and (self.replay_shards, self.inference) != (1, "actor"):
            raise UsageError("a program without actors has neither replay shards nor an inference server.")
        if self.replay_shards > max(1, self.actors):
            raise UsageError(
                f"{self.replay_shards} replay shards need as many actors to write to them, and there are {self.actors}."
            )
        for name in ("inference", "experience"):
            if (place := getattr(self, name)) not in ("actor", "server"):
                raise UsageError(f"{name} is {place!r}: it must be 'actor' or 'server'.")
        if self.experience == "server" and self.inference == "actor":
            raise UsageError("experience on the server needs inference on the server.")
        if self.inference_servers is not None:
            if self.inference == "actor":
                raise UsageError(
                    f"inference_servers is {self.inference_servers}: that needs inference on the server, and it is on "
                    "the actors."
                )
            if self.inference_servers > self.actors:
                raise UsageError(
                    f"{self.inference_servers} inference servers need as many actors to ask them, and there are "
                    f"{self.actors}."
                )
        for group in self.accelerated:
            if group not in _COMPUTING:
                raise UsageError(f"{group!r} can't be given accelerators, only {', '.join(_COMPUTING)}.")

        for group, asked in self.resources.items():
            if group not in self.groups:
                raise UsageError(f"resources are asked for {group!r}: {nearest(group, self.groups)}")
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
    def groups(self) -> dict[str, int]:
        """The groups of the program, each with its number of nodes."""
        if not self.actors:
            return {"coordinator": 1, "learner": 1, "evaluator": self.evaluators}
        inference = {"inference": self.inference_servers or 1} if self.inference == "server" else {}
        fixed = {"replay": self.replay_shards, "coordinator": 1, "learner": 1, "evaluator": self.evaluators}
        return {**fixed, **inference, "actor": self.actors}

    @property
    def all_resources(self) -> dict[str, dict[str, float]]:
        """The resources that each node of every group asks Ray for."""
        return {
            group: {**_RESOURCES.get(group, {"CPU": 1.0}), **self.resources.get(group, {})} for group in self.groups
        }

    @property
    def accelerated_here(self) -> tuple[str, ...]:
        """The groups of this program that can use accelerators."""
        return tuple(group for group in self.accelerated if group in self.groups)


def make(
    experiment: Experiment,
    topology: Topology,
    *,
    fresh: bool = False,
    quiet: bool = False,
    spec: EnvironmentSpec | None = None,
    extend: Extend | None = None,
    record: str | os.PathLike[str] | None = None,
    snapshot_every: int | None = None,
    skip_damaged: bool = False,
) -> lp.Program:
    """Returns an experiment as a Launchpad program, which resumes from the run directory if possible.

    Any of Launchpad's launchers can run the program, and nodes can be added to it. This function checks the run
    directory and selects the checkpoint to resume from.

    Args:
        experiment: the experiment to run.
        topology: how many nodes of each kind the program has, and where they compute.
        fresh: starts from the beginning even if the directory holds a part of this run.
        quiet: shows no progress line.
        spec: the environment's spec; None to create an environment here and read it.
        extend: adds your own nodes.
        record: a folder to record all complete training episodes to, see `data.format`. The nodes that write the
            experience also record it: the actors, or the inference servers. With several hosts, it must be on storage
            that they share; a node that does not find it ends the program.
        snapshot_every: steps of the budget between exports of the evaluation policy to `snapshots/STEP` in the run
            directory, by the learner; None for no exports.
        skip_damaged: skips damaged parts of recorded data with a message, instead of raising an error.

    Raises:
        UsageError: the arguments are invalid; nothing was written.
    """
    if (experiment.data is None) != bool(topology.actors):
        raise UsageError(
            "a program needs at least 1 actor."
            if experiment.data is None
            else "a run on recorded data has no actors: give Topology(actors=0)."
        )
    if experiment.data is not None and record is not None:
        raise UsageError("a run on recorded data does not act: there is nothing to record.")
    proxies.bypass()
    if extend is not None:
        added_groups(topology, extend)
    spec = experiment.make_spec() if spec is None else spec
    if experiment.data is not None:
        _, folder = offline.check_data(experiment, spec, skip_damaged=skip_damaged)
        folder.check_shards()
        part = None
    else:
        check(experiment, spec)
        agent = experiment.make_agent(spec)
        demonstrations.check(experiment, agent, spec, skip_damaged=skip_damaged)
        writers = topology.actors * (1 if topology.inference == "actor" else callers_of(experiment))
        for warning in foresee(experiment, agent, writers):
            print(f"acme-ext: {warning}", file=sys.stderr)
        part = agent.replay.split(topology.replay_shards)
    shards = topology.replay_shards if part is not None else 0
    # A resumed run needs as many actors (their numbers are in the seeds) and shards (each has a folder in checkpoints).
    arrangement = {"program": {"actors": topology.actors, "replay_shards": shards}} if shards else {}
    check_directory(experiment, fresh=fresh, arrangement=arrangement)
    recorded = recorded_to(record, experiment, spec)
    rundir = prepare(experiment, fresh=fresh, arrangement=arrangement)
    if not quiet:
        print(f"acme-ext: the run directory is {rundir.path}", file=sys.stderr)
    making: dict[str, Any] = {}
    if recorded is not None:
        recorded.begin()
        writers = topology.groups["actor" if topology.experience == "actor" else "inference"]
        making = {"record": functools.partial(part_of, str(recorded.path.absolute()), writers)}
    restored = RunCheckpoints(rundir, experiment.checkpoints, print).restore({})
    stored = replay_folder(restored)
    resumes = None if restored is None else restored.steps
    token = secrets.token_bytes(TOKEN_BYTES)

    program = lp.Program("acme-ext")
    replays: list[Any] = []
    if part is not None:
        with program.group("replay"):
            for shard in range(shards):
                contents = stored and shard_folder(stored.absolute(), shard)
                replays.append(program.add_node(ReplayNode(part.tables, rundir.replay.absolute(), contents)))
    with program.group("coordinator"):
        coordinator = program.add_node(
            lp.CourierNode(Coordinator, experiment, topology.actors, topology.evaluators, quiet, resumes)
        )
    learning = {"snapshot_every": snapshot_every, "skip_damaged": skip_damaged}
    on_devices = functools.partial(devices.on, topology, rundir.path.absolute())
    with program.group("learner"):
        make_learner = on_devices("learner", 0, LearnerNode)
        learner = program.add_node(
            LearnerCourierNode(make_learner, token, experiment, spec, replays, coordinator, resumes, **learning)
        )
    with program.group("evaluator"):
        for index in range(topology.evaluators):
            make_evaluator = on_devices("evaluator", index, EvaluatorNode)
            program.add_node(lp.PyNode(_run, make_evaluator, experiment, spec, index, learner, coordinator))
    inference: list[Any] = []
    options: dict[str, Any] = {}
    if servers := topology.groups.get("inference", 0):
        # Each actor's environments form two parts: while one waits for its actions, the other steps.
        options = {
            "callers": callers_of(experiment),
            "experience": topology.experience == "actor",
            "token": token,
        }
        with program.group("inference"):
            for index in range(servers):
                of_all = {"index": index, "servers": servers, **options, **making}
                make_server = functools.partial(InferenceNode, experiment, spec, topology.actors, **of_all)
                node = lp.CourierNode(on_devices("inference", index, make_server))
                node.configure(replays, learner, coordinator, address=node.courier_address)
                inference.append(program.add_node(node))
    for index in range(topology.actors):
        with program.group("actor"):
            make_actor = functools.partial(ActorNode, experiment, index, topology.actors, **options, **making)
            server = inference[index % len(inference)] if inference else None
            with_shard = (replays[index % shards], shards)
            program.add_node(
                lp.PyNode(_run, on_devices("actor", index, make_actor), *with_shard, learner, server, coordinator)
            )
    if extend is not None:
        extend(program, Handles(learner, coordinator, replays))
    return program


def added_groups(topology: Topology, extend: Extend) -> dict[str, int]:
    """Returns the groups that `extend` adds to a program of this topology, each with its number of nodes.

    Raises:
        UsageError: `extend` adds a node to one of the program's own groups.
    """
    program = lp.Program("acme-ext")
    learner, coordinator = (lp.CourierNode(object).create_handle() for _ in range(2))
    shards = topology.groups.get("replay", 0)
    replays = [ReplayNode(list, pathlib.Path(), None).create_handle() for _ in range(shards)]
    extend(program, Handles(learner, coordinator, replays))
    groups = {label: len(nodes) for label, nodes in program.groups.items()}
    for label in groups:
        if label in _GROUPS:
            raise UsageError(
                f"nodes of your own can't be in the group {label!r}, which is the program's: name another."
            )
    return groups


def _run(make_worker, *arguments) -> None:
    """Makes a worker in its node, and runs it."""
    make_worker(*arguments).run()

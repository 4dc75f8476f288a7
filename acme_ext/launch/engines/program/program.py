"""An experiment as a program of nodes.

actors --rows--> replay shards --batches--> learner --parameters--> actors, evaluators
   |                  ^----- priorities -------|                         |
   +------------------------- reports to the coordinator ----------------+
"""

import functools
import pathlib
import secrets
import sys
from collections.abc import Callable
from typing import Any

from acme_ext.data.recorder import part_of
from acme_ext.errors import UsageError
from acme_ext.launch.engines.program import devices
from acme_ext.launch.engines.program.nodes.actor import ActorNode, callers_of
from acme_ext.launch.engines.program.nodes.coordinator import Coordinator
from acme_ext.launch.engines.program.nodes.evaluator import EvaluatorNode
from acme_ext.launch.engines.program.nodes.inference import InferenceNode
from acme_ext.launch.engines.program.nodes.learner import LearnerCourierNode, LearnerNode
from acme_ext.launch.engines.program.nodes.replay import ReplayNode, shard_folder
from acme_ext.launch.hosts import launchpad as lp
from acme_ext.launch.placement import Handles, Program, RunOptions
from acme_ext.launch.roles import ROLES
from acme_ext.launch.runs.directory import prepare
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.saving import RunCheckpoints, replay_folder
from acme_ext.launch.runs.start import check_start
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import proxies
from acme_ext.utils.calls import TOKEN_BYTES


def make(
    experiment: Experiment,
    on: Program,
    options: RunOptions | None = None,
    *,
    spec: EnvironmentSpec | None = None,
    before_writing: Callable[[], None] = lambda: None,
) -> lp.Program:
    """Returns an experiment as a program, which resumes from the run directory if possible.

    Nodes can be added to the program. Where Launchpad is installed, any of its launchers can run it. This function
    checks the run directory and selects the checkpoint to resume from.

    Args:
        experiment: the experiment to run.
        on: how many nodes of each kind the program has, and where they compute.
        options: the run's options. The nodes that write the experience also record it: the actors, or the inference
            servers. A node that does not find the folder ends the program. The learner exports snapshots.
        spec: the environment's spec; None to create an environment here and read it.
        before_writing: called after all checks, before the run directory is changed; it may raise UsageError.

    Raises:
        UsageError: the arguments are invalid; nothing was written.
    """
    if not isinstance(on, Program):
        raise UsageError(f"on is {on!r}: it must be launch.Processes(), Threads() or Ray().")
    on, options = on.for_run(experiment), options or RunOptions()
    on.check(experiment, options)
    proxies.bypass()
    if on.extend is not None:
        added_groups(on)
    spec = experiment.make_spec() if spec is None else spec
    writers = on.num_actors * (1 if on.inference == "actor" else callers_of(experiment))
    start = check_start(experiment, spec, None, on, options, writers=writers)
    part = start.agent.replay.split(on.replay_shards) if on.num_actors else None
    shards = on.replay_shards if part is not None else 0
    before_writing()
    for warning in start.warnings:
        print(f"acme-ext: {warning}", file=sys.stderr)
    rundir = prepare(experiment, *start.configs, fresh=options.fresh)
    if not options.quiet:
        print(f"acme-ext: the run directory is {rundir.path}", file=sys.stderr)
    making: dict[str, Any] = {}
    if start.recording is not None:
        start.recording.begin()
        writers = on.groups["actor" if on.experience == "actor" else "inference"]
        making = {"record": functools.partial(part_of, str(start.recording.path.absolute()), writers)}
    restored = RunCheckpoints(rundir, experiment.checkpoints, print).restore({})
    stored = replay_folder(restored)
    resumes = None if restored is None else restored.steps
    token = secrets.token_bytes(TOKEN_BYTES)

    program = lp.Program("acme-ext")
    replays: list[Any] = []
    if part is not None:
        kind = experiment.table_kind
        with program.group("replay"):
            for shard in range(shards):
                contents = stored and shard_folder(stored.absolute(), shard)
                replays.append(program.add_node(ReplayNode(part, kind, token, rundir.replay.absolute(), contents)))
    with program.group("coordinator"):
        coordinator = program.add_node(
            lp.CourierNode(Coordinator, experiment, on.num_actors, on.evaluators, options.quiet, resumes)
        )
    learning = {"snapshot_every": options.snapshot_every, "skip_damaged": options.skip_damaged}
    on_devices = functools.partial(devices.with_devices, on, rundir.path.absolute())
    with program.group("learner"):
        make_learner = on_devices("learner", 0, LearnerNode)
        learner = program.add_node(
            LearnerCourierNode(make_learner, token, experiment, spec, replays, coordinator, resumes, **learning)
        )
    with program.group("evaluator"):
        for index in range(on.evaluators):
            make_evaluator = on_devices("evaluator", index, EvaluatorNode)
            program.add_node(lp.PyNode(_run, make_evaluator, experiment, spec, index, learner, coordinator))
    inference: list[Any] = []
    asking: dict[str, Any] = {}
    if servers := on.groups.get("inference", 0):
        # Each actor's environments form two parts: while one waits for its actions, the other steps.
        asking = {
            "callers": callers_of(experiment),
            "experience": on.experience == "actor",
            "token": token,
        }
        with program.group("inference"):
            for index in range(servers):
                of_all = {"index": index, "servers": servers, **asking, **making}
                make_server = functools.partial(InferenceNode, experiment, spec, on.num_actors, **of_all)
                node = lp.CourierNode(on_devices("inference", index, make_server))
                node.configure(replays, learner, coordinator, address=node.courier_address)
                inference.append(program.add_node(node))
    for index in range(on.num_actors):
        with program.group("actor"):
            make_actor = functools.partial(ActorNode, experiment, index, on.num_actors, **asking, **making)
            server = inference[index % len(inference)] if inference else None
            with_shard = (replays[index % shards], shards)
            program.add_node(
                lp.PyNode(_run, on_devices("actor", index, make_actor), *with_shard, learner, server, coordinator)
            )
    if on.extend is not None:
        on.extend(program, Handles(learner, coordinator, replays))
    return program


def added_groups(on: Program) -> dict[str, int]:
    """Returns the groups that `extend` adds to a program, each with its number of nodes.

    Raises:
        UsageError: `extend` adds a node to one of the program's own groups.
    """
    program = lp.Program("acme-ext")
    learner, coordinator = (lp.CourierNode(object).create_handle() for _ in range(2))
    shards = on.groups.get("replay", 0)
    nothing: Any = None
    replays = [ReplayNode(nothing, "embedded", b"", pathlib.Path(), None).create_handle() for _ in range(shards)]
    assert on.extend is not None
    on.extend(program, Handles(learner, coordinator, replays))
    groups = {label: len(nodes) for label, nodes in program.groups.items()}
    for label in groups:
        if label in ROLES:
            raise UsageError(
                f"nodes of your own can't be in the group {label!r}, which is the program's: name another."
            )
    return groups


def _run(make_worker, *arguments) -> None:
    """Makes a worker in its node, and runs it."""
    make_worker(*arguments).run()

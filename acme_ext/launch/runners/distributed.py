"""Runs an experiment as a program of several processes, from Python in one call."""

import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import launcher, threads
from acme_ext.launch.processes.forks import (
    GRACE_S,
    MAKE_SPEC,
    Options,
    give_devices,
    in_child,
    refuse_devices,
)
from acme_ext.launch.roles import ROLES, SERVERS, role_of
from acme_ext.launch.runners import devices
from acme_ext.launch.runners.program import Extend, Topology, added_groups, make
from acme_ext.launch.runners.upkeep import check_learner
from acme_ext.launch.runs.evaluation import Result, Score
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.replay import server
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import files, install
from acme_ext.utils.rundir import RunDirectory


def run_program(
    experiment: Experiment,
    topology: Topology,
    *,
    fresh: bool = False,
    quiet: bool = False,
    on: str = "processes",
    restarts: int = 0,
    grace_s: float | None = None,
    private: bool = True,
    ray_address: str | None = None,
    ray_wait_s: float | None = None,
    ray_runtime_env: Mapping[str, Any] | None = None,
    extend: Extend | None = None,
    record: str | os.PathLike[str] | None = None,
    snapshot_every: int | None = None,
    skip_damaged: bool = False,
) -> Result:
    """Runs an experiment as a program until its budget is used, resuming from its run directory if possible.

    Args:
        experiment: the experiment to run.
        topology: how many nodes of each kind the program has, and where they compute.
        fresh: starts from the beginning even if the directory holds a part of this run.
        quiet: shows no progress line.
        on: where the nodes run: as `processes` of this machine, as `threads` of this process, or on the hosts of a Ray
            cluster (`ray`).
        restarts: how often per hour actors, evaluators and inference servers are restarted when they die. The first
            restart is immediate. If a node dies again within a minute, the delay is 1 s, then 2 s and so on up to 60 s.
            When another node dies, or a lost host had nodes that can't be restarted alone, the whole program restarts
            from its last checkpoint; that counts as one restart. 0 on threads.
        grace_s: seconds that nodes get to end by themselves when they are told to stop. Nodes that no other node calls
            stop first, then each kind of server. Nodes that exceed the time are killed. 0 kills them at once, infinity
            never. None: 1 s, or 5 s on threads, which can't be killed and are left running.
        private: hides the program's ports from the network, if the kernel permits it (for processes, and for a Ray
            that is started for this run).
        ray_address: the address of a cluster that this machine belongs to; `auto` for one that runs here; `local` to
            start Ray on this machine for this run only. None: the variable `RAY_ADDRESS`, or else `local`.
        ray_wait_s: seconds to wait for a cluster to have room for all nodes; after that, nothing is started. None: 30 s
            if other jobs use the missing resources, and no wait if the cluster doesn't have enough in total.
        ray_runtime_env: Ray's runtime environment for the program's processes on every host, as `ray.init` takes it:
            `{"env_vars": ..., "pip": ..., "working_dir": ...}`. The current working directory is copied to the hosts
            unless another is given.
        extend: adds your own nodes. `extend(program, handles)` calls `program.add_node` in groups with new names, and
            may use the program's parts, see `launch.program.Handles`. It may be called more than once. The nodes are
            treated like actors: if one raises an error, it is restarted (`restarts`), or the program ends after a last
            save. They are told to stop (`lp.wait_for_stop`) before the nodes that they call. In such a node,
            `lp.stop()` or the function from `lp.make_program_stopper` ends the program after a last save, as SIGTERM
            does. On Ray each node asks for one CPU.
        record: a folder to record all complete training episodes to, see `program.make`.
        snapshot_every: steps of the budget between exports of the evaluation policy, see `program.make`.
        skip_damaged: skips damaged parts of recorded data with a message, instead of raising an error.

    Raises:
        UsageError: the arguments are invalid; nothing was started or written.
        RunError: a node failed; its output is on the terminal. On threads, the node's own exception is raised.
    """
    of_ray = {"address": ray_address, "wait_s": ray_wait_s, "runtime_env": ray_runtime_env}
    if on != "ray" and any(value is not None for value in of_ray.values()):
        raise UsageError(
            f"a Ray address, a wait for its hosts and a runtime environment are for programs on 'ray', not on {on!r}."
        )
    if on == "threads" and topology.resources:
        raise UsageError("threads share what their process has: resources are for programs on 'processes' or 'ray'.")
    if on == "threads" and restarts:
        raise UsageError("threads are never restarted: restarts are for programs on 'processes' or 'ray'.")
    for name, value in (("restarts", restarts), ("grace_s", grace_s), ("ray_wait_s", ray_wait_s)):
        if value is not None and not value >= 0:
            raise UsageError(f"{name} is {value}: it must be at least 0.")
    if record is not None:
        record = os.path.abspath(files.expanded(record))  # the nodes may have another working directory
    making: dict[str, Any] = {
        "quiet": quiet,
        "extend": extend,
        "record": record,
        "snapshot_every": snapshot_every,
        "skip_damaged": skip_damaged,
    }
    if on == "threads":
        threads.check_thread()
        server.import_libraries()
        making["spec"] = _spec(experiment, snapshot_every)
        code = threads.run(
            make(experiment, topology, fresh=fresh, **making),
            [group for group in SERVERS if not ROLES[group].resumable],
            threads.GRACE_S if grace_s is None else grace_s,
        )
    elif on == "processes":
        code = _run_processes(experiment, topology, fresh, restarts, grace_s, private, making)
    elif on == "ray":
        code = _run_on_ray(experiment, topology, fresh, restarts, grace_s, private, making, **of_ray)
    else:
        raise UsageError(f"a program runs on 'processes', 'threads' or 'ray', not on {on!r}.")
    if code < 0:
        raise RunError(f"the program's supervisor was killed by {signal.Signals(-code).name}.")
    if code == 2:
        raise UsageError("the program did not start.")
    if code not in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM):
        raise RunError("the program failed.")
    return _result(experiment, code)


def _spec(experiment: Experiment, snapshot_every: int | None, options: Options | None = None) -> EnvironmentSpec:
    """Returns the environment's spec, and checks what needs the learner's devices, see `check_learner`.

    Args:
        experiment: the experiment that the program runs.
        snapshot_every: see `run_program`.
        options: gives this process the devices of the learner; None if it has them.
    """
    if options is not None:
        give_devices("learner", "learner", options)
    spec = experiment.make_spec()
    check_learner(experiment, experiment.make_agent(spec), spec, snapshot_every)
    return spec


def _run_processes(
    experiment: Experiment,
    topology: Topology,
    fresh: bool,
    restarts: int,
    grace_s: float | None,
    private: bool,
    making: dict[str, Any],
) -> int:
    options = devices.options(topology, pathlib.Path(experiment.directory), restarts, grace_s)

    def load() -> tuple[Callable[[bool], Any], tuple[str, ...], Options]:
        # An environment may start threads or a device, and processes that are forked later must not inherit those.
        spec = in_child(functools.partial(_spec, experiment, making["snapshot_every"], options), MAKE_SPEC)

        def make_program(first: bool) -> Any:
            experiment.make_agent(spec)
            refuse_devices()  # before anything is written
            return make(experiment, topology, fresh=fresh and first, spec=spec, **making)

        return make_program, SERVERS, options

    return launcher.run("processes.supervisor", load, private)


def _run_on_ray(
    experiment: Experiment,
    topology: Topology,
    fresh: bool,
    restarts: int,
    grace_s: float | None,
    private: bool,
    making: dict[str, Any],
    *,
    address: str | None,
    wait_s: float | None,
    runtime_env: Mapping[str, Any] | None,
) -> int:
    if importlib.util.find_spec("ray") is None:
        raise UsageError(f"a program on Ray needs the extra `ray`, not installed here: {install.command('ray')}")
    from acme_ext.launch.cluster import connection, nursery
    from acme_ext.launch.cluster.driver import Plan

    address = connection.address_of(address)
    directory = experiment.directory.absolute()
    if connection.job_environment().get("working_dir") and directory.is_relative_to(pathlib.Path.cwd()):
        print(
            f"acme-ext: {directory} is in Ray's copy of the job's working directory, which Ray deletes some time after "
            "the job: choose a run directory elsewhere (--run-dir) to keep the run.",
            file=sys.stderr,
        )
    # The nodes have another working directory.
    recorded = {name: getattr(experiment, name) for name in ("data", "demos")}
    paths = {name: os.path.abspath(files.expanded(path)) for name, path in recorded.items() if path is not None}
    experiment = dataclasses.replace(experiment, run_dir=str(directory), **paths)

    def load(first: bool, spec: EnvironmentSpec) -> Any:
        return make(experiment, topology, fresh=fresh and first, spec=spec, **making)

    extend = making["extend"]
    added = added_groups(topology, extend) if extend is not None else {}
    run, code = f"acme-ext-{uuid.uuid4().hex[:12]}", launcher.code_folder()
    with tempfile.TemporaryDirectory(prefix="acme-ext-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        plan = Plan(
            run,
            experiment.make_spec,
            load,
            {**topology.groups, **added},
            {**topology.all_resources, **{group: {"CPU": role_of(group).cpus} for group in added}},
            SERVERS,
            directory,
            address,
            pathlib.Path(folder),
            code,
            launcher.module_folders(code if address is not None else None),
            restarts,
            wait_s,
            runtime_env or {},
            GRACE_S if grace_s is None else grace_s,
        )
        try:
            return launcher.run("cluster.driver", plan, private and address is None)
        finally:
            for token in directory.parent.glob(f".{run}-*"):
                token.unlink(missing_ok=True)
            for scratch in nursery.scratch().glob(f"{run}-*"):
                nursery.clear(scratch)


def _result(experiment: Experiment, code: int) -> Result:
    if code and not experiment.directory.exists():  # stopped before it began
        return Result(experiment.directory, 0, 0, None, None, code - 128)
    rundir = RunDirectory(experiment.directory)
    restored = CheckpointStore(rundir.checkpoints).restore({}, extra=False)
    if not code and restored is not None and not rundir.evaluation.is_file():
        code = 128 + signal.SIGTERM  # a node has stopped the program by the coordinator's `request_stop`
    if restored is None and code:
        return Result(rundir.path, 0, 0, None, None, code - 128)
    if restored is None:
        raise RunError("the program was stopped from outside before its first checkpoint.")
    learner_steps = restored.info["state"]["learner_steps"]
    steps = restored.steps if experiment.data is None else 0
    if code:
        return Result(rundir.path, steps, learner_steps, None, None, code - 128)
    found = json.loads(rundir.evaluation.read_text())
    score = Score(np.array(found["returns"]), np.array(found["lengths"]))
    return Result(rundir.path, steps, learner_steps, score, rundir.curve)

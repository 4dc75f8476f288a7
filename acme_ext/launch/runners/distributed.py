"""Running an experiment as a program, from Python in one call."""

import dataclasses
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
from acme_ext.launch.processes.forks import GRACE_S, MAKE_SPEC, Options, in_child
from acme_ext.launch.runners import devices
from acme_ext.launch.runners.program import SERVERS, Extend, Topology, added_groups, make
from acme_ext.launch.runs.evaluation import Result, Score
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.replay import server
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import install
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
    """Runs an experiment as a program, from where its run directory stands to its budget.

    Args:
        experiment: what to run.
        topology: how it is spread out.
        fresh: starts anew even if the directory holds a part of this run.
        quiet: shows no progress line.
        on: `processes` of this machine, `threads` of this process, or `ray`, the hosts of a Ray cluster.
        restarts: times in an hour that actors, evaluators and inference servers are started again when they die: at
            once, and one that dies again within a minute after 1 s, 2 s and so on up to 60 s. When another node dies,
            or what can't be started again by itself is lost with a host, the whole program is started again from its
            last checkpoint, which counts once. On threads there are none.
        grace_s: seconds that nodes get to end by themselves when they are told to, those that nobody dials first, and
            then each kind of server. Those that don't are killed. 0 kills them at once, infinite never. None: 1 s, or
            5 s on threads, which can't be killed and are then left alone.
        private: keeps the program's ports from the network, where the kernel lets it (processes, and a Ray of its own).
        ray_address: of a cluster that this machine is a part of, `auto` for one that runs here; `local` starts a Ray on
            this machine for the run alone. None: as the variable `RAY_ADDRESS` says, or else `local`.
        ray_wait_s: seconds that a cluster has to make room for all nodes, before nothing is started. None: 30 s where
            others hold what is missing, and no time where the cluster hasn't as much.
        ray_runtime_env: what Ray is to start the program's processes with on every host, as `ray.init` takes it:
            `{"env_vars": ..., "pip": ..., "working_dir": ...}`. The working directory travels to the hosts unless
            another is named.
        extend: adds nodes of one's own: `extend(program, handles)` calls `program.add_node` in groups of their own,
            with the program's parts that it wants to use, see `launch.program.Handles`. It may be called more than
            once. The nodes are looked after like actors: what raises ends the program after a last save, or is started
            again (`restarts`), and all are told to end (`lp.wait_for_stop`) before what they dial is. `lp.stop()` in
            one, or what `lp.make_program_stopper` returns there, ends the program after a last save, as SIGTERM does.
            On Ray each asks for one CPU.
        record: a folder that all whole episodes of training are recorded to, see `program.make`.
        snapshot_every: steps of the budget between exports of the evaluation policy, likewise.
        skip_damaged: leaves out damaged parts of recorded data, with a note, in place of refusing them.

    Raises:
        UsageError: nothing was started or written; the message says why.
        RunError: a node failed; what it printed is on the terminal. On threads, what the node raised comes as it is.
    """
    of_ray = {"address": ray_address, "wait_s": ray_wait_s, "runtime_env": ray_runtime_env}
    if on != "ray" and any(value is not None for value in of_ray.values()):
        raise UsageError(
            f"a Ray address, a wait for its hosts and a runtime environment are for programs on 'ray', not on {on!r}."
        )
    if on == "threads" and topology.resources:
        raise UsageError("threads share what their process has: resources are for programs on 'processes' or 'ray'.")
    if grace_s is not None and not grace_s >= 0:
        raise UsageError(f"grace_s is {grace_s}: it must be at least 0.")
    if record is not None:
        record = os.path.abspath(os.path.expanduser(record))  # the nodes' own working directory may be another
    making: dict[str, Any] = {
        "quiet": quiet,
        "extend": extend,
        "record": record,
        "snapshot_every": snapshot_every,
        "skip_damaged": skip_damaged,
    }
    if on == "threads":
        server.import_libraries()
        code = threads.run(
            make(experiment, topology, fresh=fresh, **making), threads.GRACE_S if grace_s is None else grace_s
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
        # An environment may start threads or a device, which the processes that are forked later must not find.
        spec = in_child(experiment.make_spec, MAKE_SPEC)
        return lambda first: make(experiment, topology, fresh=fresh and first, spec=spec, **making), SERVERS, options

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
    # The nodes' own working directory is another.
    recorded = {name: getattr(experiment, name) for name in ("data", "demos")}
    paths = {name: os.path.abspath(os.path.expanduser(path)) for name, path in recorded.items() if path is not None}
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
            {**topology.all_resources, **{group: {"CPU": 1.0} for group in added}},
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
    rundir = RunDirectory(experiment.directory)
    restored = CheckpointStore(rundir.checkpoints).restore({}, extra=False)
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

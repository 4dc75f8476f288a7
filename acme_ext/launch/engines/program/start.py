"""Runs an experiment as a program: its nodes in processes, in threads or on the hosts of a Ray cluster."""

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
from collections.abc import Callable
from typing import Any

import numpy as np

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.engines.program import devices
from acme_ext.launch.engines.program.program import added_groups, make
from acme_ext.launch.hosts import launcher, threads
from acme_ext.launch.hosts.fork_server import MAKE_SPEC, in_child, refuse_devices
from acme_ext.launch.hosts.node_process import GRACE_S, Options, give_devices
from acme_ext.launch.placement import Processes, Program, Ray, RunOptions, Threads
from acme_ext.launch.roles import NodeId, role_of
from acme_ext.launch.runs.evaluation import Result, Score
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.saving import Counts
from acme_ext.launch.runs.start import check_learner
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.replay import stores
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import files, install
from acme_ext.utils.rundir import RunDirectory


def run_program(experiment: Experiment, on: Program, options: RunOptions) -> Result:
    """Runs an experiment as a program until its budget is used; see `launch.run`."""
    if options.record is not None:  # the nodes may have another working directory
        options = dataclasses.replace(options, record=os.path.abspath(files.expanded(options.record)))
    if isinstance(on, Threads):
        threads.check_thread()
        if experiment.data is None:
            stores.import_libraries(experiment.table_kind)
        code = threads.run(
            make(experiment, on, options, spec=_spec(experiment, on, options)),
            threads.GRACE_S if on.grace_s is None else on.grace_s,
        )
    elif isinstance(on, Processes):
        code = _run_processes(experiment, on, options)
    else:
        assert isinstance(on, Ray)
        code = _run_on_ray(experiment, on, options)
    if code < 0:
        raise RunError(f"the program's supervisor was killed by {signal.Signals(-code).name}.")
    if code == 2:
        raise UsageError("the program did not start.")
    if code not in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM):
        raise RunError("the program failed.")
    return _result(experiment, code)


def _spec(
    experiment: Experiment, on: Program, options: RunOptions, node_options: Options | None = None
) -> EnvironmentSpec:
    """Returns the environment's spec, and checks what needs the learner's devices, see `check_learner`.

    Args:
        experiment: the experiment that the program runs.
        on: how it is run.
        options: the run's options.
        node_options: gives this process the devices of the learner; None if it has them.
    """
    if node_options is not None:
        give_devices(NodeId("learner"), node_options)
    spec = experiment.make_spec()
    check_learner(experiment, experiment.make_agent(spec), spec, options)
    return spec


def _run_processes(experiment: Experiment, on: Processes, options: RunOptions) -> int:
    node_options = devices.options(on, pathlib.Path(experiment.directory))

    def load() -> tuple[Callable[[bool], Any], Options]:
        # An environment may start threads or a device, and processes that are forked later must not inherit those.
        spec = in_child(functools.partial(_spec, experiment, on, options, node_options), MAKE_SPEC)

        def make_program(first: bool) -> Any:
            now = dataclasses.replace(options, fresh=options.fresh and first)
            return make(experiment, on, now, spec=spec, before_writing=refuse_devices)

        return make_program, node_options

    return launcher.run("local", load, on.private)


def _run_on_ray(experiment: Experiment, on: Ray, options: RunOptions) -> int:
    if importlib.util.find_spec("ray") is None:
        raise UsageError(f"a program on Ray needs the extra `ray`, not installed here: {install.command('ray')}")
    from acme_ext.launch.hosts.ray import connection, host_server
    from acme_ext.launch.hosts.ray.fleet import Plan

    address = connection.address_of(on.address)
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
        return make(experiment, on, dataclasses.replace(options, fresh=options.fresh and first), spec=spec)

    added = added_groups(on) if on.extend is not None else {}
    run, code = f"acme-ext-{uuid.uuid4().hex[:12]}", launcher.code_folder()
    with tempfile.TemporaryDirectory(prefix="acme-ext-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        plan = Plan(
            run,
            experiment.make_spec,
            load,
            {**on.groups, **added},
            {**on.all_resources, **{group: {"CPU": role_of(group).cpus} for group in added}},
            directory,
            address,
            pathlib.Path(folder),
            code,
            launcher.module_folders(code if address is not None else None),
            on.restarts,
            on.wait_s,
            on.runtime_env or {},
            GRACE_S if on.grace_s is None else on.grace_s,
        )
        try:
            return launcher.run("ray.driver", plan, on.private and address is None)
        finally:
            for token in directory.parent.glob(f".{run}-*"):
                token.unlink(missing_ok=True)
            for scratch in host_server.scratch().glob(f"{run}-*"):
                host_server.clear(scratch)


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
    counts = Counts.of_state(restored.info["state"])
    steps, learner_steps = counts.environment_steps, counts.learner_steps
    if code:
        return Result(rundir.path, steps, learner_steps, None, None, code - 128)
    found = json.loads(rundir.evaluation.read_text())
    score = Score(np.array(found["returns"]), np.array(found["lengths"]))
    return Result(rundir.path, steps, learner_steps, score, rundir.curve)

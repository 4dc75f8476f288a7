"""Running an experiment as a program, from Python in one call."""

import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import uuid
from typing import Any

import numpy as np

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import interrupt, process_tree, threads
from acme_ext.launch.processes.forks import MAKE_SPEC, Options, in_child
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
    private: bool = True,
    ray_address: str | None = None,
    ray_wait_s: float | None = None,
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
            once, and one that dies again within a minute after 1 s, 2 s and so on up to 60 s. On Ray the whole program
            is, too, from its last checkpoint, when what can't be started again by itself is lost; all that is lost with
            one host counts once.
        private: keeps the program's ports from the network, where the kernel lets it (processes, and a Ray of its own).
        ray_address: of a cluster that this machine is a part of, `auto` for one that runs here; None starts a Ray on
            this machine for the run alone.
        ray_wait_s: seconds that a cluster has to make room for all nodes, before nothing is started. None: 30 s where
            others hold what is missing, and no time where the cluster hasn't as much.
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
    if on != "ray" and (ray_address is not None or ray_wait_s is not None or topology.resources):
        raise UsageError(f"a Ray address, a wait for its hosts and resources are for programs on 'ray', not on {on!r}.")
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
        code = threads.run(make(experiment, topology, fresh=fresh, **making))
    elif on == "processes":
        code = _run_processes(experiment, topology, fresh, restarts, private, making)
    elif on == "ray":
        code = _run_on_ray(experiment, topology, fresh, restarts, private, ray_address, ray_wait_s, making)
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
    private: bool,
    making: dict[str, Any],
) -> int:
    logs = pathlib.Path(experiment.directory).absolute() / "logs" / "nodes"

    def load() -> tuple[Any, tuple[str, ...], Options]:
        # The learner takes what the others leave.
        share = max(1, len(os.sched_getaffinity(0)) // (topology.actors + topology.evaluators))
        options = Options(logs, restarts, topology.accelerated_here, {"actor": share, "evaluator": share})
        # An environment may start threads or a device, which the processes that are forked later must not find.
        spec = in_child(experiment.make_spec, MAKE_SPEC)
        return make(experiment, topology, fresh=fresh, spec=spec, **making), SERVERS, options

    return _under_keeper("processes.supervisor", load, private)


def _run_on_ray(
    experiment: Experiment,
    topology: Topology,
    fresh: bool,
    restarts: int,
    private: bool,
    address: str | None,
    wait_s: float | None,
    making: dict[str, Any],
) -> int:
    if importlib.util.find_spec("ray") is None:
        raise UsageError(f"a program on Ray needs the extra `ray`, not installed here: {install.command('ray')}")
    from acme_ext.launch.cluster import nursery
    from acme_ext.launch.cluster.driver import Plan

    directory = experiment.directory.absolute()
    # The nodes' own working directory is another.
    recorded = {name: getattr(experiment, name) for name in ("data", "demos")}
    paths = {name: os.path.abspath(os.path.expanduser(path)) for name, path in recorded.items() if path is not None}
    experiment = dataclasses.replace(experiment, run_dir=str(directory), **paths)

    def load(first: bool, spec: EnvironmentSpec) -> Any:
        return make(experiment, topology, fresh=fresh and first, spec=spec, **making)

    extend = making["extend"]
    added = added_groups(topology, extend) if extend is not None else {}
    run, code = f"acme-ext-{uuid.uuid4().hex[:12]}", code_folder()
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
            module_folders(code if address is not None else None),
            restarts,
            wait_s,
        )
        try:
            return _under_keeper("cluster.driver", plan, private and address is None)
        finally:
            for token in directory.parent.glob(f".{run}-*"):
                token.unlink(missing_ok=True)
            for scratch in nursery.scratch().glob(f"{run}-*"):
                nursery.clear(scratch)


def code_folder() -> pathlib.Path:
    """Returns the folder with the user's own code: the script's, where that is not in the working directory, or else
    the latter.
    """
    here, main = pathlib.Path.cwd(), sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None:  # interactive, or `python -m`
        return here
    folder = pathlib.Path(file).resolve().parent
    return here if folder.is_relative_to(here) or folder.is_relative_to(pathlib.Path(sys.prefix)) else folder


def module_folders(code: pathlib.Path | None) -> list[str]:
    """Returns where this process finds modules, but for the interpreter's own folders, which are no good to another
    one that an environment may start: what lies in the folder `code` relative to it.
    """
    names = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = [pathlib.Path(name).resolve() for name in [*names, *site.getsitepackages(), site.getusersitepackages()]]
    zipped = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    found = []
    for entry in (pathlib.Path(name).resolve() for name in sys.path):
        if not entry.exists() or entry.name == zipped or any(entry.is_relative_to(folder) for folder in own):
            continue
        inside = code is not None and entry.is_relative_to(code)
        found.append(str(entry.relative_to(code) if code is not None and inside else entry))
    return found


def _under_keeper(entry: str, payload: Any, private: bool) -> int:
    """Runs the `main` of a module in `launch` beneath a keeper; returns its exit code."""
    import cloudpickle

    with tempfile.TemporaryFile(prefix="acme-ext-") as file:
        cloudpickle.dump((private, cloudpickle.dumps(payload)), file)
        file.seek(0)
        line = [sys.executable, "-m", "acme_ext.launch.processes.keeper", entry, str(file.fileno()), str(os.getpid())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(module_folders(None))}
        return _call(line, environment, file.fileno())


def _call(line: list[str], environment: dict[str, str], descriptor: int) -> int:
    """Runs the keeper; stop requests are passed on from its first moment, and the supervisor decides."""
    process: subprocess.Popen | None = None
    started, passed_on = threading.Event(), -math.inf

    def pass_on(number: int) -> None:
        nonlocal passed_on
        started.wait()
        if process is not None and time.monotonic() - passed_on > interrupt.SAME_REQUEST_S:
            passed_on = time.monotonic()
            process.send_signal(process_tree.REQUESTS[signal.Signals(number)])

    with interrupt.heard_by(pass_on):
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [*process_tree.REQUESTS, *process_tree.REQUESTS.values()])
        try:
            process = subprocess.Popen(line, env=environment, pass_fds=[descriptor])
        finally:
            started.set()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return process.wait()


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

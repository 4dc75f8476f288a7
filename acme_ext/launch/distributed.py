"""Running an experiment as a program, from Python in one call."""

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import numpy as np

from acme_ext.errors import RunError, UsageError
from acme_ext.launch import processes, threads
from acme_ext.launch.evaluation import Score
from acme_ext.launch.experiment import Experiment
from acme_ext.launch.forks import Options
from acme_ext.launch.local import Result
from acme_ext.launch.program import SERVERS, Topology, make
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.utils.rundir import RunDirectory

_SAME_WISH_S = 0.25  # `timeout` signals a command, and then its process group


def run_program(
    experiment: Experiment,
    topology: Topology,
    *,
    fresh: bool = False,
    quiet: bool = False,
    on: str = "processes",
    restarts: int = 0,
    private: bool = True,
) -> Result:
    """Runs an experiment as a program on this machine, from where its run directory stands to its budget.

    Args:
        experiment: what to run.
        topology: how it is spread out.
        fresh: starts anew even if the directory holds a part of this run.
        quiet: shows no progress line.
        on: `processes`, or `threads` of this process.
        restarts: times that actors, evaluators and the inference server are started again when they die, in all.
        private: keeps the program's ports from the network, where the kernel lets it (processes only).

    Raises:
        UsageError: nothing was started or written; the message says why.
        RunError: a node failed; what it printed is on the terminal. On threads, what the node raised comes as it is.
    """
    if on == "threads":
        code = threads.run(make(experiment, topology, fresh=fresh, quiet=quiet))
    elif on == "processes":
        code = _run_processes(experiment, topology, fresh, quiet, restarts, private)
    else:
        raise UsageError(f"a program runs on 'processes' or 'threads', not on {on!r}.")
    if code < 0:
        raise RunError(f"the program's supervisor was killed by {signal.Signals(-code).name}.")
    if code == 2:
        raise UsageError("the program did not start.")
    if code not in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM):
        raise RunError("the program failed.")
    return _result(experiment, code)


def _run_processes(
    experiment: Experiment, topology: Topology, fresh: bool, quiet: bool, restarts: int, private: bool
) -> int:
    import cloudpickle

    logs = pathlib.Path(experiment.directory).absolute() / "logs" / "nodes"

    def load() -> tuple[Any, tuple[str, ...], Options]:
        # The learner takes what the others leave.
        share = max(1, len(os.sched_getaffinity(0)) // (topology.actors + topology.evaluators))
        options = Options(logs, restarts, topology.accelerated_here, {"actor": share, "evaluator": share})
        return make(experiment, topology, fresh=fresh, quiet=quiet), SERVERS, options

    with tempfile.TemporaryFile(prefix="acme-ext-") as file:
        cloudpickle.dump((private, cloudpickle.dumps(load)), file)
        file.seek(0)
        line = [sys.executable, "-m", "acme_ext.launch.keeper", str(file.fileno()), str(os.getpid())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [*processes.WISHES, *processes.WISHES.values()])
        try:
            process = subprocess.Popen(line, env=environment, pass_fds=[file.fileno()])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return _wait(process)


def _wait(process: subprocess.Popen) -> int:
    """Waits for the keeper; wishes to stop are passed on, and the supervisor decides."""
    if threading.current_thread() is not threading.main_thread():
        return process.wait()
    passed_on = -math.inf

    def pass_on(number: int, frame: Any) -> None:
        nonlocal passed_on
        if time.monotonic() - passed_on > _SAME_WISH_S:
            passed_on = time.monotonic()
            process.send_signal(processes.WISHES[signal.Signals(number)])

    previous = {number: signal.signal(number, pass_on) for number in processes.STOP_SIGNALS}
    try:
        return process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _result(experiment: Experiment, code: int) -> Result:
    rundir = RunDirectory(experiment.directory)
    restored = CheckpointStore(rundir.checkpoints).restore({})
    if restored is None and code:
        return Result(rundir.path, 0, 0, None, None, code - 128)
    if restored is None:
        raise RunError("the program was stopped from outside before its first checkpoint.")
    steps, learner_steps = restored.steps, restored.info["state"]["learner_steps"]
    if code:
        return Result(rundir.path, steps, learner_steps, None, None, code - 128)
    from acme_ext.utils import plots

    found = json.loads(rundir.evaluation.read_text())
    label = f"{experiment.builder.name} on {experiment.environment_name}"
    curve = plots.learning_curves({label: [rundir]}, rundir.curve)
    score = Score(np.array(found["returns"]), np.array(found["lengths"]))
    return Result(rundir.path, steps, learner_steps, score, curve)

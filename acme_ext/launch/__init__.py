"""Runs experiments: `run(experiment, on=...)`.

| module or package | contents |
|---|---|
| `runner` | `launch.run`, which reads top to bottom: checks, directory, session, engine |
| `placement` | where a run's parts are executed: `InProcess`, `Processes`, `Threads`, `Ray`, `Compiled` |
| `session` | the life of a run: counts, logs, evaluations, checkpoints, resuming, result |
| `engines` | what advances a run: in one process, on recorded data, compiled, or as a program of nodes |
| `roles` | what the nodes of a program are |
| `runs` | the experiment, the checks before its start, its run directory, its evaluations and its trained policy |
| `hosts` | starts, watches and stops a program's nodes on this machine, or on the hosts of a Ray cluster |
| `exporting` | exports a run's policy to files for NumPy, JAX and ONNX |

This module has the names that users need. Each is imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from acme_ext.config.values import named as named
from acme_ext.launch.hosts import interrupt

if TYPE_CHECKING:
    from acme_ext.launch.engines.program import program as program
    from acme_ext.launch.placement import Compiled as Compiled
    from acme_ext.launch.placement import Handles as Handles
    from acme_ext.launch.placement import InProcess as InProcess
    from acme_ext.launch.placement import Processes as Processes
    from acme_ext.launch.placement import Ray as Ray
    from acme_ext.launch.placement import RunOptions as RunOptions
    from acme_ext.launch.placement import Threads as Threads
    from acme_ext.launch.runner import run as run
    from acme_ext.launch.runs.evaluation import Result as Result
    from acme_ext.launch.runs.experiment import Experiment as Experiment
    from acme_ext.launch.runs.schedule import Checkpoints as Checkpoints
    from acme_ext.launch.runs.schedule import Evaluation as Evaluation
    from acme_ext.launch.runs.trained import Run as Run
    from acme_ext.launch.runs.trained import load as load

_WHERE = {
    "Experiment": "runs.experiment",
    "Evaluation": "runs.schedule",
    "Checkpoints": "runs.schedule",
    "run": "runner",
    "InProcess": "placement",
    "Processes": "placement",
    "Threads": "placement",
    "Ray": "placement",
    "Compiled": "placement",
    "RunOptions": "placement",
    "Handles": "placement",
    "Result": "runs.evaluation",
    "Run": "runs.trained",
    "load": "runs.trained",
    "program": "engines.program.program",  # the module; its `make` returns the program
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # This imports JAX and Reverb. A Ctrl-C during their import could become another error, or be lost.
    with interrupt.install_handler(None):
        module = importlib.import_module(f"acme_ext.launch.{_WHERE[name]}")
    return module if name == "program" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})

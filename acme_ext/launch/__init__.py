"""Runs experiments: in one process (`run`), as a program of several processes (`run_program`) or compiled
(`run_compiled`).

| package | contents |
|---|---|
| `runs` | the experiment, its settings, its run directory, its evaluations and its trained policy |
| `runners` | runs an experiment: `local` in one process; `program`, its `nodes` and `distributed` in several |
| `compiled` | runs environments, acting, replay and learning as one compiled JAX program |
| `processes` | starts, watches and stops a program's processes on one machine |
| `cluster` | does the same on the hosts of a Ray cluster |
| `exporting` | exports a run's policy to files for NumPy, JAX and ONNX |

The runners import `runs`, and `runs` imports no runner. `processes` and `cluster` run any Launchpad program; all that
they use of this package's experiments is the modules to import before a fork. The commands in `acme_ext.commands` use
all of these packages.

This module has the names that users need. Each is imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from acme_ext.config.values import named as named
from acme_ext.launch.processes import interrupt
from acme_ext.utils import worlds

if TYPE_CHECKING:
    from acme_ext.launch.compiled.runner import run as run_compiled  # noqa: F401
    from acme_ext.launch.runners import program as program
    from acme_ext.launch.runners.distributed import run_program as run_program
    from acme_ext.launch.runners.local import run as run
    from acme_ext.launch.runners.program import Topology as Topology
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
    "run": "runners.local",
    "Result": "runs.evaluation",
    "Topology": "runners.program",
    "Run": "runs.trained",
    "load": "runs.trained",
    "run_program": "runners.distributed",
    "run_compiled": "compiled.runner:run",
    "program": "runners.program",  # the module; its `make` returns the Launchpad program
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _WHERE[name] in ("runners.distributed", "runners.program"):
        worlds.need_reverb("a program")
    # This imports JAX and Reverb. A Ctrl-C during their import could become another error, or be lost.
    with interrupt.heard_by(None):
        path, _, there = _WHERE[name].partition(":")
        module = importlib.import_module(f"acme_ext.launch.{path}")
    return module if name == "program" else getattr(module, there or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})

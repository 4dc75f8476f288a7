"""Running an experiment: in one process (`run`), as a program of several (`run_program`), or compiled
(`run_compiled`).

| package | what is in it |
|---|---|
| `runs` | what a run is: the experiment, its settings, its directory, its evaluations, its trained policy |
| `runners` | the ways to carry one out: `local` in one process, `program` and its `nodes`, `distributed` |
| `compiled` | the other way: environments, acting, replay and learning as one compiled program |
| `processes` | a program's processes on one machine: how they are started, watched and stopped |
| `cluster` | the same on the hosts of a Ray cluster |
| `exporting` | a run's policy in files for NumPy, JAX and ONNX |

The runners import `runs`, and `runs` imports no runner. `processes` and `cluster` run any Launchpad program; all they
use of an experiment is what has to be imported before a fork. The commands, in `acme_ext.commands`, use all of these.

The names that users need are those of this module, and are imported when first asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from acme_ext.launch.processes import interrupt
from acme_ext.utils import worlds
from acme_ext.utils.naming import named as named

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
    "program": "runners.program",  # the module, whose `make` gives the Launchpad program
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _WHERE[name] in ("runners.distributed", "runners.program"):
        worlds.need_reverb("a program")
    # JAX and Reverb, half of which would turn a Ctrl-C into an error of their own or lose it.
    with interrupt.heard_by(None):
        path, _, there = _WHERE[name].partition(":")
        module = importlib.import_module(f"acme_ext.launch.{path}")
    return module if name == "program" else getattr(module, there or name)

"""Running an experiment: in one process (`run`), as a program (`run_program`), or from the command line."""

import importlib
from typing import TYPE_CHECKING, Any

from acme_ext.utils import worlds
from acme_ext.utils.naming import named as named

if TYPE_CHECKING:
    from acme_ext.launch.distributed import run_program as run_program
    from acme_ext.launch.evaluation import Result as Result
    from acme_ext.launch.experiment import Checkpoints as Checkpoints
    from acme_ext.launch.experiment import Evaluation as Evaluation
    from acme_ext.launch.experiment import Experiment as Experiment
    from acme_ext.launch.local import run as run
    from acme_ext.launch.program import Topology as Topology
    from acme_ext.launch.trained import Run as Run
    from acme_ext.launch.trained import load as load

from acme_ext.launch import interrupt

_WHERE = {
    "Experiment": "experiment",
    "Evaluation": "experiment",
    "Checkpoints": "experiment",
    "run": "local",
    "Result": "evaluation",
    "Topology": "program",
    "Run": "trained",
    "load": "trained",
    "run_program": "distributed",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        if _WHERE[name] in ("distributed", "program"):
            worlds.need_reverb("a program")
        # JAX and Reverb, half of which would turn a Ctrl-C into an error of their own or lose it.
        with interrupt.heard_by(None):
            return getattr(importlib.import_module(f"acme_ext.launch.{_WHERE[name]}"), name)
    if name == "program":  # whose `make` gives the Launchpad program
        worlds.need_reverb("a program")
        with interrupt.heard_by(None):
            return importlib.import_module("acme_ext.launch.program")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

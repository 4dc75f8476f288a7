"""Running an experiment: in one process (`run`), as a program (`run_program`), or from the command line."""

import importlib
from typing import Any

from acme_ext.launch import interrupt

_WHERE = {
    "Experiment": "experiment",
    "Evaluation": "experiment",
    "Checkpoints": "experiment",
    "run": "local",
    "Result": "local",
    "evaluate_run": "evaluation",
    "Topology": "program",
    "run_program": "distributed",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        # JAX and Reverb, half of which would turn a Ctrl-C into an error of their own or lose it.
        with interrupt.heard_by(None):
            return getattr(importlib.import_module(f"acme_ext.launch.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

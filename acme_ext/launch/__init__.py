"""Running an experiment: in one process (`run`), or from the command line (`launch.cli`)."""

import importlib
from typing import Any

_WHERE = {
    "Experiment": "experiment",
    "Evaluation": "experiment",
    "Checkpoints": "experiment",
    "run": "local",
    "Result": "local",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"acme_ext.launch.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

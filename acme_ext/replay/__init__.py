"""Experience replay. The names of this module are imported on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acme_ext.replay.base import Replay
    from acme_ext.replay.config import ReplayConfig, SequenceConfig, TransitionConfig, UnrollConfig
    from acme_ext.replay.fixed import FixedRows
    from acme_ext.replay.limits import RateLimit
    from acme_ext.replay.mixed import Mixed, Source
    from acme_ext.replay.sequences import SequenceReplay
    from acme_ext.replay.transitions import TransitionReplay

_WHERE = {
    "FixedRows": "fixed",
    "Mixed": "mixed",
    "Source": "mixed",
    "Replay": "base",
    "ReplayConfig": "config",
    "SequenceConfig": "config",
    "TransitionConfig": "config",
    "UnrollConfig": "config",
    "RateLimit": "limits",
    "SequenceReplay": "sequences",
    "TransitionReplay": "transitions",
}

__all__ = [
    "FixedRows",
    "Mixed",
    "RateLimit",
    "Replay",
    "ReplayConfig",
    "SequenceConfig",
    "SequenceReplay",
    "Source",
    "TransitionConfig",
    "TransitionReplay",
    "UnrollConfig",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"acme_ext.replay.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})

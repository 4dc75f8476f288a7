"""Experience, through Reverb. What is named here is imported when first asked for."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acme_ext.replay.limits import RateLimit
    from acme_ext.replay.sequences import SequenceReplay
    from acme_ext.replay.transitions import TransitionReplay

__all__ = ["RateLimit", "SequenceReplay", "TransitionReplay"]

_WHERE = {"RateLimit": "limits", "SequenceReplay": "sequences", "TransitionReplay": "transitions"}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"acme_ext.replay.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Measures how a run in one process spends its time."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from acme_ext.utils import files
from acme_ext.utils.profiling import Profiler

_COMPILED_CALLS = 2  # learner calls after which everything is compiled; the profile starts then


class RunProfile:
    """Measures the time of each part of a run, starting when everything is compiled."""

    def __init__(self) -> None:
        self._profiler = Profiler()
        self._from = 0  # the run's step at which the profile starts

    def batches(self, dataset: Iterator[Any]) -> Iterator[Any]:
        """Returns the dataset with its waiting time measured."""
        return self._profiler.iterator("waiting for replay", dataset)

    def watch_part(self, environment: Any, actor: Any) -> None:
        """Starts measuring the objects that a part of the run has of its own."""
        self._profiler.wrap("environment", environment, "step", "reset")
        self._profiler.wrap("policy", actor, "select_action", "update")

    def watch(self, writer: Any, learner: Any, *, evaluation: Any, logging: Any) -> None:
        """Starts measuring the other objects of a run; `evaluation` evaluates, and `logging` logs and saves."""
        wrap = self._profiler.wrap
        wrap("writer", writer, "add", "add_first", "flush", "wait")
        wrap("learner", learner, "step")
        wrap("evaluation", evaluation, "evaluate")
        wrap("housekeeping", evaluation, "metrics", "state", "doing")
        wrap("housekeeping", logging, "log", "save", "tell")

    def restart_once_compiled(self, learner_calls: int, steps: int) -> None:
        """Restarts the profile once the learner is compiled, given its calls and the run's steps."""
        if not self._from and learner_calls >= _COMPILED_CALLS:
            self._profiler.restart()
            self._from = steps

    def report(self, steps: int, folder: Path, report: Callable[[str], None]) -> None:
        """Writes `profile.txt` and `trace.json` to a folder, and reports the table and the files' paths.

        Args:
            steps: the run's steps at its end.
            folder: the run directory.
            report: called with messages for the user.
        """
        self._profiler.stop()
        table = self._profiler.table(max(1, steps - self._from), "step")
        trace, text = folder / "trace.json", folder / "profile.txt"
        self._profiler.write_trace(trace)
        files.write_text(text, table)
        report(f"{table}the table is {text}, the trace {trace}: https://ui.perfetto.dev opens it.")

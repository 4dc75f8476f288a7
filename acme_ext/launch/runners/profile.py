"""Where the time of a run in one process goes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from acme_ext.launch.runners.keeping import ActingUpkeep
from acme_ext.utils import files
from acme_ext.utils.profiling import Profiler

_COMPILED_CALLS = 2  # of the learner, after which nothing is left to compile: a profile begins there


class RunProfile:
    """Measures the parts of a run, from when everything is compiled."""

    def __init__(self) -> None:
        self._profiler = Profiler()
        self._from = 0  # step of the run

    def batches(self, dataset: Iterator[Any]) -> Iterator[Any]:
        """Returns a dataset whose waits are measured."""
        return self._profiler.iterator("waiting for replay", dataset)

    def watch(self, run: ActingUpkeep, environment: Any) -> None:
        """Measures the parts of a run that has been made."""
        wrap = self._profiler.wrap
        wrap("environment", environment, "step", "reset")
        wrap("policy", run.actor, "select_action", "update")
        wrap("writer", run.writer, "add", "add_first", "flush", "wait")
        wrap("learner", run.learner, "step")
        wrap("evaluation", run, "_evaluate")
        wrap("housekeeping", run, "_housekeeping", "_on_episode", "_save", "_log_learner")

    def look(self, run: ActingUpkeep) -> None:
        """Begins anew once the learner is compiled."""
        if not self._from and run.learner.calls >= _COMPILED_CALLS:
            self._profiler.restart()
            self._from = run.steps

    def report(self, run: ActingUpkeep, folder: Path, report: Callable[[str], None]) -> None:
        """Writes `profile.txt` and `trace.json` to a folder, and says what is in them."""
        self._profiler.stop()
        table = self._profiler.table(max(1, run.steps - self._from), "step")
        trace, text = folder / "trace.json", folder / "profile.txt"
        self._profiler.write_trace(trace)
        files.write_text(text, table)
        report(f"{table}the table is {text}, the trace {trace}: https://ui.perfetto.dev opens it.")

"""The console of a run in one process: its progress line, its messages and its stop requests."""

import contextlib
from collections.abc import Callable, Iterator

from acme_ext.errors import exited
from acme_ext.launch.hosts.interrupt import Interrupt, graceful
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.utils.progress import ProgressLine


@contextlib.contextmanager
def console(
    experiment: Experiment, *, quiet: bool
) -> Iterator[tuple[ProgressLine | None, Callable[[str], None], Interrupt]]:
    """Yields the progress line (None if quiet), a function that prints a line, and an `Interrupt` that sees signals.

    Raises RunError if the body raises SystemExit.
    """
    with contextlib.ExitStack() as stack:
        progress = None if quiet else stack.enter_context(ProgressLine(experiment.steps, budget=experiment.step_key))
        report = progress.print if progress else print
        interrupt = stack.enter_context(graceful(report))
        try:
            yield progress, report, interrupt
        except SystemExit as error:
            raise exited(error) from error

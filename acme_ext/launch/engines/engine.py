"""What an engine is: it advances a run, and knows nothing of the run's life."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from acme_ext.launch.runs.evaluation import Loaded, Score
from acme_ext.launch.runs.saving import Contents


class Engine(Protocol):
    """What advances a run: one process, recorded data, or a compiled program of several seeds.

    An engine has the sessions of its seeds, mostly one, and sets their `counts`. Methods with an `index` concern one
    of these sessions.
    """

    def advance(self) -> None:
        """Makes the next steps: at most up to the `next_stop` of each session if it makes many at once."""

    def finish(self) -> None:
        """Learns from what is left; called after the last `advance`."""

    def end_part(self) -> None:
        """Ends a part of the run, where a checkpoint is due that a resumed run goes on from exactly.

        All episodes are cut off, and what was acted is learned from. What `state` then returns is where the next
        `advance` goes on, in this process or in a resumed run, with new episodes.
        """

    def metrics(self, due: Sequence[bool]) -> Sequence[Mapping[str, Mapping[str, float]]]:
        """Returns the new log rows of each session, by the name of the log; none for a session that isn't due."""
        ...

    def evaluate(self, episodes: int, on_step: Callable[[], None]) -> Sequence[Score]:
        """Evaluates each session's newest parameters; `on_step` is called often, and raises to end the evaluation."""
        ...

    def loaded(self, index: int) -> Loaded:
        """Returns the agent as it is now."""
        ...

    def state(self, index: int, *, flushed: bool) -> Contents:
        """Returns what a resume needs besides the session's own state.

        With `flushed`, the replay holds all that was written to it; without, some of it may be missing.

        Raises:
            NotFiniteError: the loss was not finite, so that the parameters must not be saved.
        """
        ...

    def doing(self) -> tuple[Mapping[str, str], str]:
        """Returns what each part of the run is doing, and the state of its replay, in words."""
        ...

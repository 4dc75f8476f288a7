"""What the engines share that have one learner in this process."""

from collections.abc import Callable, Mapping, Sequence

from acme_ext.launch.runs.evaluation import Evaluator, Loaded, Score
from acme_ext.launch.runs.start import Start
from acme_ext.launch.session import Session
from acme_ext.learning.learner import Learner


class LearnerEngine:
    """The part of an engine that logs and evaluates what its learner has learned.

    Args:
        start: the run.
        session: the run's session.
        learner: the learner.
    """

    def __init__(self, start: Start, session: Session, learner: Learner):
        self._start, self._session, self._learner = start, session, learner
        self._calls_logged = 0  # the learner's calls before the latest row, which has the metrics of the last of them
        self._evaluator = Evaluator(start.experiment, start.spec, learner, agent=start.agent)

    def metrics(self, due: Sequence[bool]) -> list[Mapping[str, Mapping[str, float]]]:
        if self._learner.calls == self._calls_logged:
            return [{}]
        self._calls_logged = self._learner.calls
        return [{"learner": {**self._session.columns(), **self._learner.metrics(), **self._drawn()}}]

    def evaluate(self, episodes: int, on_step: Callable[[], None]) -> list[Score]:
        return [self._evaluator.evaluate(episodes, on_step, statistics=self._statistics())]

    def loaded(self, index: int) -> Loaded:
        start = self._start
        return Loaded(
            start.experiment,
            start.spec,
            start.agent,
            self._learner,
            self._statistics(),
            self._session.steps,
            start.actions,
        )

    def _drawn(self) -> Mapping[str, int]:
        """Returns how many samples came from each source, as metrics."""
        return {}

    def _statistics(self) -> list | None:
        """Returns the policies' shared statistics, see `Policy.shared_statistics`; None if there are none."""
        return None

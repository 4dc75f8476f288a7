"""Advances a run on recorded data: a learner and evaluations, without acting."""

import contextlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from acme_ext.launch.runs.evaluation import Evaluator, Loaded, Score
from acme_ext.launch.runs.recorded_data import data_batches
from acme_ext.launch.runs.saving import Contents
from acme_ext.launch.runs.start import Start
from acme_ext.launch.session import Session


class RecordedEngine:
    """Learns from an experiment's `data`; the environment is used for evaluation only.

    Two runs with the same seed give the same parameters, even if one of them was stopped and resumed.

    Args:
        start: the run.
        session: the run's session.
        rows: the data's rows, see `recorded_data.read_rows`.
        stack: closes the engine's parts.
    """

    rows_every = None

    def __init__(self, start: Start, session: Session, rows: np.ndarray, stack: contextlib.ExitStack):
        experiment, agent = start.experiment, start.agent
        self._start, self._session = start, session
        self._batches = data_batches(experiment, agent, rows)
        self._learner = agent.make_learner(self._batches, [], experiment.key("learner"), devices=experiment.devices())
        stack.callback(self._learner.close)
        self._evaluator = Evaluator(experiment, start.spec, self._learner, agent=agent)
        if restored := session.restore({"learner": agent.core.abstract_state()}):
            self._learner.restore(restored.trees["learner"])
            self._learner.steps = session.counts.learner_steps
            self._batches.restore(restored.info["state"]["batches"])

    def advance(self) -> None:
        self._learner.step()
        self._session.counts.learner_steps = self._learner.steps

    def finish(self) -> None:
        pass

    def metrics(self, due: Sequence[bool]) -> list[Mapping[str, Mapping[str, float]]]:
        if not self._learner.calls:
            return [{}]
        return [{"learner": {**self._session.columns(), **self._learner.metrics()}}]

    def evaluate(self, episodes: int, on_step: Callable[[], None]) -> list[Score]:
        return [self._evaluator.evaluate(episodes, on_step)]

    def loaded(self, index: int) -> Loaded:
        start = self._start
        return Loaded(
            start.experiment, start.spec, start.agent, self._learner, None, self._session.steps, start.actions
        )

    def state(self, index: int, *, flushed: bool) -> Contents:
        self._learner.check()
        return Contents({"learner": self._learner.save()}, {"batches": self._batches.save()})

    def doing(self) -> tuple[Mapping[str, str], str]:
        return {"the run": "learning from recorded data"}, ""

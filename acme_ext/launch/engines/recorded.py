"""Advances a run on recorded data: a learner and evaluations, without acting."""

import contextlib
from collections.abc import Mapping

import numpy as np

from acme_ext.launch.engines.learner_engine import LearnerEngine
from acme_ext.launch.runs.recorded_data import data_batches
from acme_ext.launch.runs.saving import Contents
from acme_ext.launch.runs.start import Start
from acme_ext.launch.session import Session


class RecordedEngine(LearnerEngine):
    """Learns from an experiment's `data`; the environment is used for evaluation only.

    Two runs with the same seed give the same parameters, even if one of them was stopped and resumed.

    Args:
        start: the run.
        session: the run's session.
        rows: the data's rows, see `recorded_data.read_rows`.
        stack: closes the engine's parts.
    """

    def __init__(self, start: Start, session: Session, rows: np.ndarray, stack: contextlib.ExitStack):
        experiment, agent = start.experiment, start.agent
        self._batches = data_batches(experiment, agent, rows)
        learner = agent.make_learner(self._batches, [], experiment.key("learner"), devices=experiment.devices())
        stack.callback(learner.close)
        super().__init__(start, session, learner)
        if restored := session.restore({"learner": agent.core.abstract_state()}):
            self._learner.restore(restored.trees["learner"])
            self._learner.steps = session.counts.learner_steps
            self._batches.restore(restored.info["state"]["batches"])

    def advance(self) -> None:
        self._learner.step()
        self._session.counts.learner_steps = self._learner.steps

    def end_part(self) -> None:
        """Does nothing: every resumed run goes on exactly."""

    def finish(self) -> None:
        pass

    def state(self, index: int, *, flushed: bool) -> Contents:
        self._learner.check()
        return Contents({"learner": self._learner.save()}, {"batches": self._batches.save(), "exact": True})

    def doing(self) -> tuple[Mapping[str, str], str]:
        return {"the run": "learning from recorded data"}, ""

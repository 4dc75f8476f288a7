"""The node of an evaluator."""

import pickle
from typing import Any

import jax

from acme_ext.acting.remote import RemoteVariables
from acme_ext.acting.variables import POLICY
from acme_ext.launch.engines.program.nodes.reports import Reporter, StopWaitingError, enter, waiting
from acme_ext.launch.hosts import launchpad as lp
from acme_ext.launch.runs.evaluation import Evaluator, FixedVariables
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.types import EnvironmentSpec

_LOOK_S = 0.05


class EvaluatorNode:
    """Runs the evaluations that the coordinator assigns, each with parameters at least as new as it requires.

    Args:
        experiment: the experiment that the program runs.
        spec: the environment's spec.
        index: the evaluator's number.
        learner: the learner's client.
        coordinator: the coordinator's client.
    """

    def __init__(self, experiment: Experiment, spec: EnvironmentSpec, index: int, learner: Any, coordinator: Any):
        self._reporter = Reporter(coordinator, enter(coordinator, "evaluator", index), period_s=_LOOK_S)
        self._variables = RemoteVariables(
            learner.variables, on_wait=waiting(self._reporter, lambda: "waiting for the learner's parameters")
        )
        self._evaluated: dict[str, Any] = {}
        self._evaluator = Evaluator(experiment, spec, FixedVariables(self._evaluated))

    def run(self) -> None:
        """Evaluates until it is told to stop."""
        done = None
        try:
            while not lp.wait_for_stop(_LOOK_S):
                orders = self._reporter.report("has nothing to evaluate", now=True)
                if orders.stop:
                    break
                task = orders.evaluate
                if task is None or task["task"] == done:
                    continue
                self._variables.wait_for(task["learner_steps"])
                version, self._evaluated[POLICY] = self._variables.held()  # newer ones may come during the evaluation
                score = self._evaluator.evaluate(
                    task["episodes"], on_step=self._on_step, statistics=task.get("standing")
                )
                better = score.returns.mean() > task["best"]
                self._reporter.done(
                    task=task["task"],
                    version=version,
                    row=score.row(),
                    score=score.to_json(),
                    params=pickle.dumps(jax.device_get(self._evaluator.params)) if better else None,
                    steps=task["steps"],
                    statistics=task.get("standing"),
                )
                done = task["task"]
        except StopWaitingError:
            pass
        self._variables.close()

    def _on_step(self) -> None:
        self._reporter.counts["evaluator_steps"] = self._evaluator.steps
        if self._reporter.report("evaluating").stop or lp.wait_for_stop(0):
            raise StopWaitingError

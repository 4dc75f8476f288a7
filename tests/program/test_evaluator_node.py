"""The evaluator's node, with a learner, a coordinator and an evaluator of the test's own."""

import pickle
from concurrent import futures
from typing import Any

import numpy as np
import pytest

from acme_ext.launch.engines.program.nodes import evaluator as nodes_evaluator
from acme_ext.launch.engines.program.nodes.evaluator import EvaluatorNode
from acme_ext.launch.runs.evaluation import Score

TASK = {"task": 3, "learner_steps": 40, "episodes": 2, "steps": 1_000, "best": 4.0, "standing": [[3.0]]}


class Coordinator:
    """Assigns the task in every report until it is done or takes too many steps, and then tells the node to stop."""

    def __init__(self, task):
        self.task, self.results, self.futures, self.last_step = task, [], self, 2

    def enter(self, name):
        return 0

    def report(self, node, state, counts, rows):
        answer = futures.Future()
        over = bool(self.results) or counts.get("evaluator_steps", 0) > self.last_step
        answer.set_result((over, 0, self.task))
        return answer

    def done(self, node, result):
        assert node == "evaluator 1, start 0"
        self.results.append(result)


class Learner:
    """Has the parameters of learner step 41; the task asks for those of 40 or later."""

    def variables(self, held):
        return 41, (pickle.dumps({"w": np.ones(1)}) if held < 41 else None)


class Changing:
    """Has newer parameters at every request, with their learner step as value."""

    def __init__(self):
        self._version = 40

    def variables(self, held):
        self._version += 1
        return self._version, pickle.dumps({"w": np.full(1, self._version)})


class Evaluator:
    """Takes `length` steps for an evaluation, whose returns are 3 and 6."""

    length = 2

    def __init__(self, experiment, spec, source):
        self._source, self.steps, self.asked = source, 0, []

    def evaluate(self, episodes, on_step, *, statistics):
        self.asked.append((episodes, statistics))
        self.params = self._source.get_variables(["policy"])[0]
        for _ in range(self.length):
            self.steps += 1
            on_step()
        return Score(np.array([3.0, 6.0]), np.array([1, 1]))


@pytest.fixture
def make(monkeypatch):
    monkeypatch.setattr(nodes_evaluator.lp, "wait_for_stop", lambda timeout_s: False)
    monkeypatch.setattr(nodes_evaluator, "Evaluator", Evaluator)
    unused: Any = None
    return lambda coordinator, learner=Learner: EvaluatorNode(unused, unused, 1, learner(), coordinator)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("best", [4.0, 4.5])
def test_a_score_is_reported_with_its_task_and_with_the_parameters_if_it_is_the_best(make, best):
    coordinator = Coordinator(TASK | {"best": best})
    node = make(coordinator)
    node.run()
    assert node._evaluator.asked == [(2, [[3.0]])]
    (result,) = coordinator.results
    given = {name: result[name] for name in ("task", "version", "steps", "statistics")}
    assert given == {"task": 3, "version": 41, "steps": 1_000, "statistics": [[3.0]]}
    assert result["row"]["episode_return_mean"] == 4.5
    if best < 4.5:
        assert pickle.loads(result["params"]) == {"w": np.ones(1)}
    else:
        assert result["params"] is None


@pytest.mark.timeout(60)
def test_an_evaluation_ends_when_the_program_does(make, monkeypatch):
    monkeypatch.setattr(Evaluator, "length", 10**9)
    coordinator = Coordinator(TASK)
    make(coordinator).run()
    assert coordinator.results == []


@pytest.mark.timeout(60)
def test_the_version_is_that_of_the_parameters_that_were_evaluated(make):
    coordinator = Coordinator(TASK)
    make(coordinator, Changing).run()
    (result,) = coordinator.results
    assert pickle.loads(result["params"]) == {"w": np.full(1, result["version"])}

"""What the coordinator counts, orders and says, without nodes."""

import math
import pickle
import threading
from concurrent import futures

import numpy as np
import pytest
from programs import Client, rows

from acme_ext.builders import DQN
from acme_ext.errors import RunError
from acme_ext.launch.engines.program.nodes import coordinator as nodes_coordinator
from acme_ext.launch.engines.program.nodes.coordinator import Coordinator
from acme_ext.launch.engines.program.nodes.reports import STARTING, UNWRITTEN, Orders, Reporter
from acme_ext.launch.roles import NodeId
from acme_ext.launch.runs import directory
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.saving import BestParams, Contents, RunCheckpoints
from acme_ext.launch.runs.schedule import Evaluation
from acme_ext.utils.rundir import RunDirectory


@pytest.fixture
def experiment(tmp_path):
    described = Experiment(
        DQN(),
        "gym:CartPole-v1",
        steps=1_000,
        evaluation=Evaluation(every=300, episodes=2, final_episodes=5),
        run_dir=str(tmp_path / "run"),
    )
    directory.prepare(described)
    return described


@pytest.fixture
def coordinator(experiment):
    made = Coordinator(experiment, actors=2)
    for actor in range(2):
        made.enter(f"actor {actor}")
    yield made
    made._stack.close()


def orders(answer):
    return Orders(*answer)


def steps(count):
    return {"environment_steps": count, "environment_episodes": count // 10}


def test_a_started_again_actor_is_another_one_and_the_dead_one_s_steps_stay(coordinator):
    coordinator.report("actor 0, start 0", "acting", steps(100))
    coordinator.report("actor 1, start 0", "acting", steps(50))
    assert coordinator.enter("actor 0") == 1
    assert orders(coordinator.report("actor 0, start 1", "acting", steps(30))).environment_steps == 180
    assert coordinator.snapshot()["counts"] == {
        "environment_steps": 180,
        "environment_episodes": 18,
        "learner_steps": 0,
    }
    assert coordinator.snapshot()["starts"] == {"actor 0": 1, "actor 1": 0}
    said = coordinator.explain()
    assert "actor 0, start 1: acting" in said
    assert "start 0: acting" in said.replace("actor 0, start 0", "")
    assert "actor 0, start 0" not in said


def test_a_report_and_its_rows_that_come_twice_count_once(coordinator, experiment):
    row = (1, "actor", {"episode_return": 1.0})
    counts = {**steps(20), "parameter_version": 4}
    coordinator.report("learner", "learning", {"learner_steps": 10})
    for _ in range(2):
        assert orders(coordinator.report("actor 0, start 0", "acting", counts, [row])).environment_steps == 20
    run = experiment.directory
    assert rows(run, "actor") == [20]
    assert rows(run, "actor", "parameter_lag") == [6]


def test_the_learner_ends_after_the_actors_and_the_evaluator_last(coordinator, experiment):
    first, second = "actor 0, start 0", "actor 1, start 0"
    assert not orders(coordinator.report(first, "acting", steps(600))).stop
    assert orders(coordinator.report(second, "acting", steps(401))) == Orders(True, 1_001, None)
    assert not orders(coordinator.report("learner", "learning", {"learner_steps": 7})).stop
    coordinator.done(first, {})
    coordinator.done(first, {})  # delivered twice
    assert not orders(coordinator.report("learner", "learning", {"learner_steps": 7})).stop
    coordinator.done(second, {})
    assert orders(coordinator.report("learner", "learning", {"learner_steps": 8})).stop
    coordinator.done("learner", {"learner_steps": 9})
    coordinator._look()
    answer = orders(coordinator.report("evaluator 0", "has nothing to evaluate", {}))
    assert not answer.stop
    assert answer.evaluate == {
        "task": "1001-True",
        "steps": 1_001,
        "learner_steps": 9,
        "episodes": 5,
        "final": True,
        "best": -math.inf,
    }
    result = {"task": "1001-True", "version": 9, "row": {"episode_return_mean": 3.0}, "score": {"returns": [3.0]}}
    better = {"params": pickle.dumps({"w": np.ones(2)}), "steps": 1_001, "standing": None}
    coordinator.done("evaluator 0", {**result, **better})
    assert BestParams(RunDirectory.open(experiment.directory)).mean == 3
    coordinator._look()  # which may come once more before it ends
    assert not coordinator._tasks
    assert orders(coordinator.report("evaluator 0", "has nothing to evaluate", {})).stop


def test_where_the_budget_is_used_only_the_final_evaluation_is_made(experiment):
    resumed = Coordinator(experiment, actors=2)
    resumed._totals["environment_steps"] = 1_000  # as after the resume of a run that has finished
    resumed._look()
    assert not resumed._tasks
    resumed._stack.close()


def test_evaluations_go_on_from_the_last_one_that_was_made(coordinator, experiment):
    coordinator.report("actor 0, start 0", "acting", steps(310))
    coordinator._look()
    task = orders(coordinator.report("evaluator 0", "has nothing to evaluate", {})).evaluate
    assert task is not None
    assert (task["steps"], task["final"]) == (310, False)
    coordinator.done("evaluator 0", {"task": task["task"], "version": 0, "row": {"episode_return_mean": 1.0}})
    coordinator.report("actor 0, start 0", "acting", steps(650))
    coordinator._look()
    # This one is given and never made: the program is killed.
    assert orders(coordinator.report("evaluator 0", "has nothing to evaluate", {})).evaluate is not None
    assert rows(experiment.directory, "evaluator") == [310]
    coordinator._session.checkpoints.save(650, Contents({}, coordinator.snapshot()))
    coordinator._stack.close()
    resumed = Coordinator(experiment, actors=2, resumes=650)
    assert resumed._session.next_evaluation == 600
    resumed._stack.close()


def test_who_asks_for_a_stop_gets_it_without_an_evaluation(coordinator):
    coordinator.report("actor 0, start 0", "acting", steps(10))
    coordinator.request_stop()
    for name in ("actor 0, start 0", "actor 1, start 0"):
        assert orders(coordinator.report(name, "acting", steps(10))).stop
        coordinator.done(name, {})
    assert orders(coordinator.report("learner", "learning", {"learner_steps": 1})).stop
    coordinator.done("learner", {"learner_steps": 1})
    coordinator._look()
    answer = orders(coordinator.report("evaluator 0", "has nothing to evaluate", {}))
    assert answer.stop
    assert answer.evaluate is None


@pytest.mark.parametrize("states", [(), ("is starting",)])
def test_a_learner_that_has_not_begun_is_not_waited_for(coordinator, states):
    for state in states:
        coordinator.report("learner", state, {})
    coordinator.request_stop()
    coordinator._look()
    assert coordinator._finished.is_set()


@pytest.mark.parametrize("states", [("waiting for a batch: none",), ("learning", "is starting")])
def test_a_learner_that_has_begun_is_waited_for_though_it_be_started_again(coordinator, states):
    coordinator.report("learner", "is starting", {})
    for state in states:
        coordinator.report("learner", state, {})
        coordinator._look()
    coordinator.request_stop()
    coordinator._look()
    assert not coordinator._finished.is_set()
    coordinator.done("learner", {"learner_steps": 0})
    coordinator._look()
    assert coordinator._finished.is_set()


def test_a_reporter_reports_when_made_then_now_and_then(coordinator):
    class Counting:
        def __init__(self):
            self.states = []

        def report(self, node, state, counts, rows):
            self.states.append((state, dict(counts), list(rows)))
            return coordinator.report(node, state, counts, rows)

    client = Counting()
    reporter = Reporter(Client(client), NodeId("actor", 0, 0), period_s=1e6)
    assert client.states == [("is starting", {}, [])]
    reporter.counts = steps(20)
    reporter.row("actor", {"episode_return": 2.0})
    assert reporter.report("acting") == Orders(False, 0)
    assert len(client.states) == 1
    assert reporter.report("acting", now=True).environment_steps == 20
    assert client.states[1] == ("acting", steps(20), [(1, "actor", {"episode_return": 2.0})])
    assert reporter.reported == steps(20)
    reporter.report("acting", now=True)
    assert client.states[2][2] == []


def test_evaluations_are_made_by_whoever_is_free_and_logged_in_their_order(experiment):
    made = Coordinator(experiment, actors=1, evaluators=2)
    made.enter("actor 0")

    def ask(name):
        return orders(made.report(name, "has nothing to evaluate", {})).evaluate

    def take(count):
        made.report("actor 0, start 0", "acting", steps(count))
        made._look()

    try:
        take(300)
        assert ask("evaluator 1")["steps"] == 300
        assert ask("evaluator 0") is None
        take(610)
        assert ask("evaluator 0")["steps"] == 610
        take(900)  # both are busy: this one waits for one of them
        # One that is started again is given what it has not done.
        assert ask("evaluator 1")["steps"] == 300
        made.done("evaluator 0", {"task": "610-False", "version": 0, "row": {"episode_return_mean": 2.0}})
        assert rows(experiment.directory, "evaluator") == []
        made.done("evaluator 1", {"task": "300-False", "version": 0, "row": {"episode_return_mean": 1.0}})
        made.done("evaluator 1", {"task": "300-False", "version": 0, "row": {"episode_return_mean": 1.0}})
        assert rows(experiment.directory, "evaluator") == [300, 610]
        assert rows(experiment.directory, "evaluator", "episode_return_mean") == [1.0, 2.0]
        made._look()
        assert ask("evaluator 0")["steps"] == 900
    finally:
        made._stack.close()


def test_an_evaluation_of_an_evaluator_that_is_lost_is_made_by_another(experiment, monkeypatch):
    made = Coordinator(experiment, actors=1, evaluators=2)
    made.enter("actor 0")

    def ask(index):
        return orders(made.report(f"evaluator {index}", "has nothing to evaluate", {})).evaluate

    def finish(index, task):
        score = {"row": {"episode_return_mean": 1.0}, "score": {"returns": [1.0]}}
        made.done(f"evaluator {index}", {"task": task, "version": 0, **score})

    try:
        made.report("actor 0, start 0", "acting", steps(300))
        made._look()
        assert ask(1)["task"] == "300-False"  # and then its host is lost, and there is no other
        made.report("actor 0, start 0", "acting", steps(1_000))
        made.done("learner", {"learner_steps": 9})
        made._look()
        assert ask(0)["task"] == "1000-True"
        finish(0, "1000-True")
        assert ask(0) is None  # the other one may still be at it
        assert not made._finished.is_set()
        monkeypatch.setattr(nodes_coordinator, "_SILENT_S", 0.0)
        assert ask(0)["task"] == "300-False"
        monkeypatch.undo()
        assert ask(1) is None
        finish(0, "300-False")
        finish(1, "300-False")  # it was only slow
        assert made._finished.is_set()
        assert rows(experiment.directory, "evaluator") == [300, 1_000]
    finally:
        made._stack.close()


def test_the_learner_does_not_wait_for_actors_that_have_died(coordinator, monkeypatch):
    monkeypatch.setattr(nodes_coordinator, "_DRAIN_S", 1e6)
    coordinator.report("actor 0, start 0", "acting", steps(10))
    coordinator.request_stop(["actor-1"])
    assert not orders(coordinator.report("learner", "learning", {"learner_steps": 1})).stop
    coordinator.done("actor 0, start 0", {})
    assert orders(coordinator.report("learner", "learning", {"learner_steps": 1})).stop


def test_a_node_of_ones_own_is_no_actor_whatever_its_name(coordinator, monkeypatch):
    monkeypatch.setattr(nodes_coordinator, "_DRAIN_S", 1e6)
    coordinator.report("actor 0, start 0", "acting", steps(10))
    coordinator.request_stop(["actor-critic", "actor-critic-1"])
    coordinator.done("actor 0, start 0", {})
    assert not orders(coordinator.report("learner", "learning", {"learner_steps": 1})).stop


def test_who_was_replaced_can_not_report_and_what_it_had_reported_stays(coordinator):
    coordinator.report("actor 1, start 0", "acting", steps(50))
    assert coordinator.enter("actor 1") == 1
    with pytest.raises(RunError, match="actor 1, start 0 is not of this part of the run"):
        coordinator.report("actor 1, start 0", "acting", steps(90))
    assert coordinator.snapshot()["counts"]["environment_steps"] == 50
    assert orders(coordinator.report("actor 1, start 1", "acting", steps(5))).environment_steps == 55


def test_a_survivor_of_an_earlier_part_is_not_counted_twice(experiment):
    first = Coordinator(experiment, actors=2)
    first.enter("actor 1")
    first.report("actor 1, start 0", "acting", steps(100))
    # After the checkpoint it is started again once more, which only the run directory knows.
    snapshot = first.snapshot()
    first._session.checkpoints.save(100, Contents({}, snapshot))
    assert first.enter("actor 1") == 1
    first._stack.close()

    second = Coordinator(experiment, actors=2)
    try:
        for survivor in ("actor 1, start 0", "actor 1, start 1"):
            with pytest.raises(RunError, match="not of this part"):
                second.report(survivor, "acting", steps(100))
            with pytest.raises(RunError, match="not of this part"):
                second.done(survivor, {})
        assert second.enter("actor 1") == 2
        with pytest.raises(RunError, match="not of this part"):
            second.report("actor 1, start 1", "acting", steps(100))
        assert orders(second.report("actor 1, start 2", "acting", steps(5))).environment_steps == 105
    finally:
        second._stack.close()


def test_an_actor_that_has_ended_and_is_told_to_be_gone_counts_once(coordinator, monkeypatch):
    monkeypatch.setattr(nodes_coordinator, "_DRAIN_S", 1e6)
    coordinator.done("actor 0, start 0", {})
    coordinator.request_stop(["actor-0", "evaluator"])
    assert not orders(coordinator.report("learner", "learning", {"learner_steps": 1})).stop


def test_every_log_is_cut_back_to_the_checkpoint_that_the_run_goes_on_from(experiment):
    first = Coordinator(experiment, actors=1)
    for name in ("actor 0", "inference"):
        first.enter(name)
    row = {"inference_steps": 1, "inference_fill": 1.0}
    first.report("actor 0, start 0", "acting", steps(100))
    first.report("inference, start 0", "serving", {}, [(1, "inference", row)])
    first._session.checkpoints.save(100, Contents({}, first.snapshot()))
    first.report("actor 0, start 0", "acting", steps(200))
    first.report("inference, start 0", "serving", {}, [(2, "inference", row)])
    first._stack.close()
    assert rows(experiment.directory, "inference") == [100, 200]
    Coordinator(experiment, actors=1)._stack.close()
    assert rows(experiment.directory, "inference") == [100]


class Slow:
    """A coordinator's client that answers when it is told to."""

    def __init__(self):
        self.reports: list[tuple] = []
        self.answers: list[futures.Future] = []

    @property
    def futures(self):
        return self

    def report(self, node, state, counts, rows):
        self.reports.append((state, counts, rows))
        self.answers.append(futures.Future())
        if state == STARTING:
            self.answers[-1].set_result((False, 0, None))
        return self.answers[-1]


def test_nobody_waits_for_the_answer_to_a_report_and_its_rows_stay_until_then():
    client = Slow()
    reporter = Reporter(client, NodeId("actor", 0, 0), period_s=0.0)
    reporter.row("actor", {"episode_return": 1.0})
    for count in (10, 20, 30):  # one report is under way
        reporter.counts["environment_steps"] = count
        assert reporter.report("acting") == Orders(False, 0)
    assert [counts for _, counts, _ in client.reports] == [{}, {"environment_steps": 10}]
    assert reporter.reported == {"environment_steps": 10}
    reporter.row("actor", {"episode_return": 2.0})
    client.answers[-1].set_result((True, 50, None))
    assert reporter.report("acting") == Orders(True, 50)
    assert client.reports[-1][1:] == ({"environment_steps": 30}, [(2, "actor", {"episode_return": 2.0})])


def test_who_wants_the_answer_now_waits_for_it_and_what_went_wrong_is_raised():
    client = Slow()
    reporter = Reporter(client, NodeId("actor", 0, 0), period_s=0.0)
    reporter.report("acting")
    client.answers[-1].set_result((False, 5, None))
    client.report = lambda *_: done(RunError("another takes its place"))  # what comes next
    with pytest.raises(RunError, match="another takes its place"):
        reporter.report("acting", now=True)


def done(error):
    answer = futures.Future()
    answer.set_exception(error)
    return answer


def test_rows_are_logged_in_their_order_while_others_report(coordinator, experiment):
    writing, go_on = threading.Event(), threading.Event()
    log = coordinator._session._write

    def slow(label, row):
        writing.set()
        assert go_on.wait(30)
        log(label, row)

    coordinator._session._write = slow
    first = threading.Thread(
        target=coordinator.report,
        args=("actor 0, start 0", "acting", steps(10), [(1, "actor", {"episode_return": 1.0})]),
    )
    first.start()
    assert writing.wait(30)
    # The log is being written, and the totals go on.
    answer = coordinator.report("actor 1, start 0", "acting", steps(20), [(1, "actor", {"episode_return": 2.0})])
    assert orders(answer).environment_steps == 30
    go_on.set()
    first.join()
    assert coordinator.snapshot()["counts"]["environment_steps"] == 30
    assert rows(experiment.directory, "actor") == [10, 30]


def test_totals_are_those_of_the_latest_reports_of_all(coordinator):
    for node, count in ((0, 10), (1, 5), (0, 25), (1, 5), (0, 25)):
        answer = coordinator.report(f"actor {node}, start 0", "acting", steps(count))
    assert orders(answer).environment_steps == 30
    assert coordinator.snapshot()["counts"] == {
        "environment_steps": 30,
        "environment_episodes": 2,
        "learner_steps": 0,
    }


def test_a_snapshot_waits_for_the_rows_that_another_thread_writes(coordinator, monkeypatch):
    begun, go_on, order = threading.Event(), threading.Event(), []

    def log(label, row):
        begun.set()
        go_on.wait(30)
        order.append("written")

    monkeypatch.setattr(coordinator._session, "_write", log)
    row = (1, "actor", {"episode_return": 1.0})
    with futures.ThreadPoolExecutor(2) as pool:
        report = pool.submit(coordinator.report, "actor 0, start 0", "acting", steps(10), [row])
        assert begun.wait(30)
        snapshot = pool.submit(lambda: (coordinator.snapshot(), order.append("saved")))
        futures.wait([snapshot], timeout=0.3)  # it may not end here
        go_on.set()
        report.result()
        snapshot.result()
    assert order == ["written", "saved"]


def test_an_evaluator_that_is_late_is_not_logged_any_more(coordinator):
    coordinator.report("actor 0, start 0", "acting", steps(400))
    coordinator._look()
    assert orders(coordinator.report("evaluator 0", "has nothing to evaluate", {})).evaluate["steps"] == 400
    coordinator._closed = True
    coordinator._stack.close()
    coordinator.done("evaluator 0", {"task": "400-False", "version": 0, "row": {"episode_return_mean": 1.0}})
    assert rows(coordinator._session.rundir.path, "evaluator") == []


def test_the_standings_of_servers_that_a_resumed_run_has_no_more_do_not_count(coordinator, experiment):
    coordinator.keep("inference", "inference", "memory", [[20.0], [2_000.0]])
    state = coordinator.snapshot()
    assert state["standing"] == [[20.0], [2_000.0]]
    coordinator._stack.close()
    RunCheckpoints(RunDirectory.open(experiment.directory), experiment.checkpoints, print).save(
        100, Contents({"learner": {"w": np.ones(1)}}, state)
    )
    resumed = Coordinator(experiment, actors=2, resumes=100)
    try:
        for name in ("inference 0 of 2", "inference 1 of 2"):
            assert resumed.kept(name) is None
        assert resumed.snapshot()["standing"] == [[20.0], [2_000.0]]  # until there is a newer one
        for name in ("inference 0 of 2", "inference 1 of 2"):
            resumed.keep(name, name, "memory", [[10.0], [500.0]])
        assert resumed.snapshot()["standing"] == [[20.0], [1_000.0]]
    finally:
        resumed._stack.close()


def test_a_program_waits_for_recorded_episodes_but_not_for_those_of_dead_nodes(coordinator, monkeypatch):
    for actor in range(2):
        coordinator.report(f"actor {actor}, start 0", "acting", {**steps(600), UNWRITTEN: 1})
    assert not coordinator._is_written()
    coordinator.report("actor 0, start 0", "has ended", {**steps(600), UNWRITTEN: 0})
    assert not coordinator._is_written()
    coordinator.enter("actor 1")  # its successor has recorded nothing yet
    assert coordinator._is_written()
    coordinator.report("actor 1, start 1", "acting", {**steps(10), UNWRITTEN: 1})
    assert not coordinator._is_written()
    monkeypatch.setattr(nodes_coordinator, "_WRITE_S", -1.0)  # silent for too long
    assert coordinator._is_written()
    monkeypatch.setattr(nodes_coordinator, "_WRITE_S", 60.0)
    coordinator.request_stop(["actor-1"])
    assert coordinator._is_written()


def test_it_ends_only_when_all_is_written(coordinator, monkeypatch):
    monkeypatch.setattr(nodes_coordinator.lp, "wait_for_stop", lambda timeout_s: False)
    monkeypatch.setattr(nodes_coordinator.lp, "stop", lambda: None)
    coordinator.report("actor 0, start 0", "acting", {**steps(600), UNWRITTEN: 1})
    coordinator.request_stop()
    coordinator._finished.set()
    running = threading.Thread(target=coordinator.run, daemon=True)
    running.start()
    running.join(0.5)
    assert running.is_alive()
    coordinator.report("actor 0, start 0", "has ended", {**steps(600), UNWRITTEN: 0})
    running.join(30)
    assert not running.is_alive()


def test_a_former_start_can_not_replace_its_successor_s_memory(coordinator):
    coordinator.keep("actor 0, start 0", "actor 0, part 0", "old", None)
    coordinator.enter("actor 0")
    coordinator.keep("actor 0, start 1", "actor 0, part 0", "new", None)
    with pytest.raises(RunError, match="another takes its place"):
        coordinator.keep("actor 0, start 0", "actor 0, part 0", "old", None)
    assert coordinator.kept("actor 0, part 0") == "new"

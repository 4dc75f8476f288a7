"""Programs of threads, in this process; not before test_fork_server.py: forks after gRPC was used hang."""

import dataclasses
import os
import re
import signal
import threading
import time

import dm_env
import jax
import numpy as np
import programs
import pytest
from dm_env import specs
from toys import Walk, toy

from acme_ext import launch
from acme_ext.builders import DQN
from acme_ext.builders.base import Agent
from acme_ext.config.assignments import replace_fields
from acme_ext.config.values import named
from acme_ext.data.format import FolderWriter
from acme_ext.errors import UsageError
from acme_ext.launch import session
from acme_ext.launch.engines.program import start
from acme_ext.launch.engines.program.nodes import coordinator
from acme_ext.launch.runs import directory
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.identity import about
from acme_ext.launch.runs.schedule import Checkpoints, Evaluation
from acme_ext.learning.checkpoints import CheckpointStore

_FOR_EVER = 10**7


def experiment(tmp_path, steps, *, environment="gym:lab_walk:LabWalk-v0", every=0, **fields):
    texts = {name: str(value) for name, value in {**programs.FIELDS, **fields}.items()}
    return Experiment(
        DQN(replace_fields(DQN().config, texts)),
        environment,
        steps=steps,
        evaluation=Evaluation(every=every, episodes=2, final_episodes=2),
        checkpoints=Checkpoints(every_s=0),
        run_dir=str(tmp_path / "run"),
    )


def wait_for(condition):
    deadline = time.monotonic() + programs.PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


@pytest.fixture(autouse=True)
def handlers_are_given_back():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.release
def test_two_shards_with_priorities_by_threads_twice_in_a_process(tmp_path):
    on = launch.Threads(actors=2, replay_shards=2)
    described = experiment(tmp_path, 600, every=200, **{"replay.prioritized": "true"})
    result = launch.run(described, on)
    assert result.score is not None
    assert len(result.score.returns) == 2
    assert 600 <= result.environment_steps <= 640
    assert result.learner_steps > 0
    run = tmp_path / "run"
    (folder,) = CheckpointStore(run / "checkpoints").restore({}).path.glob("replay")
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1"]
    scheduled = programs.rows(run, "evaluator")
    assert scheduled == sorted(scheduled)
    assert scheduled[0] >= 200
    assert scheduled[-1] == result.environment_steps

    # It goes on from there with both shards' contents.
    again = experiment(tmp_path, 900, every=200, **{"replay.prioritized": "true"})
    more = launch.run(again, on)
    assert 900 <= more.environment_steps <= 940
    assert more.learner_steps > result.learner_steps
    steps = programs.rows(run, "actor")
    assert steps == sorted(steps)


@pytest.mark.slow
def test_an_interrupt_saves_and_a_node_that_raises_is_what_the_caller_sees(tmp_path, monkeypatch):
    described = experiment(tmp_path, _FOR_EVER)

    def interrupt():
        wait_for(lambda: programs.rows(tmp_path / "run", "learner"))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = launch.run(described, launch.Threads(actors=2))
    thread.join()
    assert result.stopped_by == signal.SIGINT
    assert programs.saved(tmp_path / "run") == [result.environment_steps]
    assert result.environment_steps > 100

    monkeypatch.setenv("LAB_WALK_RAISES_AT", "50")
    with pytest.raises(ArithmeticError, match="the arm fell off"):
        launch.run(described, launch.Threads(actors=2))


@pytest.mark.release
def test_what_was_learned_is_saved_where_an_environment_raises(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_WALK_RAISES_AT", "300")
    with pytest.raises(ArithmeticError, match="the arm fell off"):
        launch.run(experiment(tmp_path, _FOR_EVER), launch.Threads(actors=1))
    counted, _, learned = programs.state(tmp_path / "run")
    assert programs.saved(tmp_path / "run") == [counted]
    assert counted > 100
    assert learned > 0


def test_evaluations_of_two_evaluators_are_logged_in_the_order_of_steps(tmp_path):
    described = experiment(tmp_path, 400, every=50)
    result = launch.run(described, launch.Threads(actors=1, evaluators=2))
    steps = programs.rows(tmp_path / "run", "evaluator")
    assert steps == sorted(steps)
    assert steps[-1] == result.environment_steps


_RELEASED = threading.Event()


class Stuck(dm_env.Environment):
    """Stands still before its 20th step until it is released."""

    def __init__(self):
        self._taken = 0

    def reset(self):
        return dm_env.restart(np.zeros(2, np.float32))

    def step(self, action):
        self._taken += 1
        if self._taken == 20:
            _RELEASED.wait(30)
        return dm_env.transition(0.0, np.zeros(2, np.float32)) if self._taken % 5 else self._end()

    def _end(self):
        return dm_env.termination(0.0, np.zeros(2, np.float32))

    def observation_spec(self):
        return specs.BoundedArray((2,), np.float32, 0, 1)

    def action_spec(self):
        return specs.DiscreteArray(2)


_MADE = []


def make_stuck(seed, evaluation):
    _MADE.append(evaluation)
    return Stuck()


def test_a_program_that_stands_still_says_what_each_node_waits_for(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "PATIENCE_S", 1.0)
    told = []

    def print_line(self, text):
        told.append(text)
        if "start 0: acting" in text and "waiting for a batch" in text:
            _RELEASED.set()

    monkeypatch.setattr(coordinator.ProgressLine, "print", print_line)
    described = experiment(tmp_path, 150, environment=make_stuck)
    launch.run(described, launch.Threads(actors=1))
    assert _RELEASED.is_set(), told
    said = next(text for text in told if "start 0: acting" in text and "waiting for a batch" in text)
    assert re.search(
        r"learner, start 0: waiting for a batch: table 'transitions' holds \d+ of \d+ items, .*waits for 100 ", said
    )
    assert re.search(r"actor 0, start 0: acting \(last report \d+ s ago\)", said)
    assert "evaluator 0, start 0: has nothing to evaluate" in said
    assert _MADE.count(False) == 2  # the actor's, and one whose specs all nodes are given


def test_what_cannot_run_on_threads_is_refused(tmp_path):
    described = experiment(tmp_path, 100)
    with pytest.raises(UsageError, match="on is 'boats': it must be InProcess"):
        launch.run(described, "boats")
    refused = []
    directory.prepare(described)
    (tmp_path / "run/best").mkdir()

    def run():
        with pytest.raises(UsageError, match="main thread"):
            launch.run(described, launch.Threads(actors=1), fresh=True)
        refused.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert refused == [True]
    # So do a batch that can't be split over the shards, and data without an episode.
    with pytest.raises(UsageError, match="does not divide over 3 replay shards"):
        launch.run(described, launch.Threads(actors=3, replay_shards=3), fresh=True)
    FolderWriter(tmp_path / "data", described.make_spec(), about(described)).begin()
    of_data = dataclasses.replace(described, data=str(tmp_path / "data"))
    with pytest.raises(UsageError, match="data has no whole episode yet"):
        launch.run(of_data, launch.Threads(), fresh=True)
    assert (tmp_path / "run/best").is_dir()


def test_a_program_that_is_stopped_before_it_begins_leaves_no_directory(tmp_path):
    result = start._result(experiment(tmp_path, 100), 128 + signal.SIGINT)
    assert (result.environment_steps, result.stopped_by) == (0, signal.SIGINT)
    assert not (tmp_path / "run").exists()


def test_each_environment_of_a_program_has_its_own_seed_key_and_rank(tmp_path, monkeypatch, no_figures):
    seeds, made, make_actor = [], [], Agent.make_actor

    def factory(seed, evaluation):
        if not evaluation:
            seeds.append(seed)
        return Walk(seed)

    def kept(self, variables, key, **given):
        actor = make_actor(self, variables, key, **given)
        if not given.get("evaluation"):
            made.append((tuple(jax.random.key_data(key).tolist()), given["rank"], actor))
        return actor

    monkeypatch.setattr(Agent, "make_actor", kept)
    experiment = Experiment(
        toy(),
        named("walks", factory),
        steps=600,
        num_envs=2,
        run_dir=str(tmp_path / "run"),
        evaluation=Evaluation(every=0, final_episodes=1, num_envs=1),
        checkpoints=Checkpoints(every_s=0),
    )
    result = launch.run(experiment, launch.Threads(actors=2), quiet=True)
    keys, ranks, actors = zip(*made, strict=True)
    assert len(set(keys)) == len(actors) == 2
    np.testing.assert_allclose(sorted(np.concatenate(ranks)), [0, 1 / 3, 2 / 3, 1], rtol=1e-6)
    assert len(set(seeds)) == len(seeds) >= 4, seeds
    # Exploration goes by the steps of all actors.
    assert min(actor.environment_steps for actor in actors) > 0.7 * result.environment_steps

"""The life of a run is the same in every engine that this process advances."""

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest
from toys import make_walk, toy

from acme_ext import builders, launch
from acme_ext.errors import UsageError
from acme_ext.launch import Checkpoints, Evaluation, Experiment, session, training
from acme_ext.launch.exporting import policy as exported
from acme_ext.launch.runs import console
from acme_ext.launch.session import Session
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.utils import loggers

pytestmark = pytest.mark.usefixtures("no_figures")

_NEVER = Checkpoints(every_s=0)  # but at the end
ENGINES = ("in one process", "on recorded data", "compiled")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(engine: str, tmp_path: Path) -> Any:
    """Returns a function that makes an experiment and its placement in one of the engines."""
    data = tmp_path / "data"
    if engine == "on recorded data":
        launch.run(Experiment(toy(), make_walk, steps=200, run_dir=str(tmp_path / "recorded")), quiet=True, record=data)

    def made(**fields: Any) -> tuple[Experiment, launch.InProcess | launch.Compiled]:
        evaluation = Evaluation(every=40, episodes=1, final_episodes=1, num_envs=1)
        common: dict[str, Any] = {"steps": 120, "evaluation": evaluation, "run_dir": str(tmp_path / "run"), **fields}
        if engine == "compiled":
            config = dataclasses.replace(builders.DQN().config, batch_size=8, hidden_sizes=(8,))
            replay = dataclasses.replace(config.replay, min_size=20, max_size=100, samples_per_insert=8.0)
            builder = builders.DQN(dataclasses.replace(config, replay=replay))
            return Experiment(builder, "jax:catch", num_envs=4, **common), launch.Compiled()
        if engine == "on recorded data":
            return Experiment(toy(), make_walk, data=str(data), **common), launch.InProcess()
        return Experiment(toy(), make_walk, **common), launch.InProcess()

    return made


def saved(folder: Path) -> int:
    """Returns the step of a run's latest checkpoint."""
    restored = CheckpointStore(folder / "checkpoints").restore({})
    assert restored is not None
    return restored.steps


def test_a_run_whose_body_raises_is_saved_first(make, tmp_path, monkeypatch):
    def log(self: Session, label: str, row: Any) -> None:
        if label == "evaluator":
            raise ArithmeticError("the log fell asleep")

    monkeypatch.setattr(Session, "log", log)
    experiment, on = make(checkpoints=_NEVER)
    with pytest.raises(ArithmeticError, match="fell asleep"):
        launch.run(experiment, on, quiet=True)
    assert 40 <= saved(tmp_path / "run") < 120
    monkeypatch.undo()
    monkeypatch.setattr("acme_ext.utils.plots.learning_curves", lambda runs, out, *rest: out)
    result = launch.run(experiment, on, quiet=True)  # it goes on from there
    assert saved(tmp_path / "run") == (result.environment_steps or result.learner_steps) >= 120


def test_an_error_is_not_replaced_by_that_of_its_save(make, monkeypatch):
    def fail(self: Session, *arguments: Any, **options: Any) -> None:
        raise ArithmeticError("the body")

    def full(self: Session, *arguments: Any, **options: Any) -> None:
        raise OSError("the disk is full")

    said: list[str] = []
    monkeypatch.setattr(Session, "evaluated", fail)
    monkeypatch.setattr(Session, "save", full)
    monkeypatch.setattr(console, "print", said.append, raising=False)
    experiment, on = make(checkpoints=_NEVER)
    with pytest.raises(ArithmeticError, match="the body"):
        launch.run(experiment, on, quiet=True)
    assert "the run could not be saved after an error: the disk is full" in said


def test_a_run_in_which_nothing_moves_says_what_it_is_doing(make, engine, monkeypatch):
    told = threading.Event()

    def report(message: str) -> None:
        if "nothing has moved for a while: " in message:
            said.append(message)
            told.set()

    log_rows = Session.log_rows

    def stalls(self: Session, rows: Any) -> None:
        told.wait(30)
        log_rows(self, rows)

    said: list[str] = []
    monkeypatch.setattr(session, "PATIENCE_S", 0.2)
    monkeypatch.setattr(Session, "log_rows", stalls)
    monkeypatch.setattr(console, "print", report, raising=False)
    experiment, on = make(steps=60)
    launch.run(experiment, on, quiet=True)
    doing = {
        "in one process": "table 'transitions' holds",
        "on recorded data": "the run is learning from recorded data",
        "compiled": "the run is acting",
    }
    assert doing[engine] in said[0]


def test_snapshots_are_exported_at_their_steps(make, tmp_path):
    experiment, on = make()
    launch.run(experiment, on, quiet=True, snapshot_every=50)
    steps = sorted(int(path.name) for path in (tmp_path / "run" / "snapshots").iterdir())
    assert len(steps) == 2
    assert 50 <= steps[0] < 60 <= 100 <= steps[1] < 110
    policy = exported.load(tmp_path / "run" / "snapshots" / f"{steps[0]:09d}")
    assert policy.about["steps"] == steps[0]


def test_each_seed_of_a_compiled_run_leaves_snapshots(tmp_path):
    config = dataclasses.replace(builders.PPO().config, hidden_sizes=(8,))
    experiment = Experiment(builders.PPO(config), "jax:catch", num_envs=8, steps=4_000, run_dir=str(tmp_path))
    result = launch.run(experiment, launch.Compiled(seeds=2), quiet=True, snapshot_every=2_000)
    assert [each.run_dir.name for each in result.seeds] == ["s0", "s1"]
    assert result.score is not None
    assert len(result.score.returns) == 2 * experiment.evaluation.final_episodes
    for each in result.seeds:
        assert len(list((each.run_dir / "snapshots").iterdir())) == 2


def test_a_run_stopped_in_an_evaluation_repeats_it(make, tmp_path, monkeypatch):
    experiment, on = make()
    life, evaluate = training._Life, training._Life._evaluate

    def stopped(self: Any, episodes: int) -> Any:
        self._interrupt.signal = 15
        return evaluate(self, episodes)

    monkeypatch.setattr(life, "_evaluate", stopped)
    assert launch.run(experiment, on, quiet=True).stopped_by == 15
    first = saved(tmp_path / "run")
    assert first >= 40
    monkeypatch.undo()
    monkeypatch.setattr("acme_ext.utils.plots.learning_curves", lambda runs, out, *rest: out)
    launch.run(experiment, on, quiet=True)
    evaluated = loggers.read_csv(tmp_path / "run/logs/evaluator.csv")[experiment.step_key]
    assert evaluated[0] == first
    assert len(evaluated) == 3


def test_what_is_no_placement_is_refused(tmp_path):
    experiment = Experiment(toy(), make_walk, run_dir=str(tmp_path / "run"))
    with pytest.raises(UsageError, match=r"on is 'ray': it must be InProcess\(\)"):
        launch.run(experiment, "ray")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()

"""Tests of the learning benchmark, with budgets too small to learn anything."""

import dataclasses
import json
import signal
import subprocess
import sys
import time

import pytest

import acme_ext
from acme_ext import builders, envs
from acme_ext.config.assignments import configure_builder
from acme_ext.data.format import Folder
from acme_ext.errors import UsageError
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory
from benchmarks.learning import outcomes, recorded, result_pages
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome
from benchmarks.learning.settings import DATA, RECORDED, SETTINGS, Recorded, Setting

TINY = Setting(
    "dqn",
    "bsuite:catch/0",
    steps=300,
    num_envs=2,
    mean=-1.0,
    least=-1.0,
    eval_every=100,
    eval_episodes=2,
    config={"replay.min_size": "50", "batch_size": "4", "replay.samples_per_insert": "1", "sgd_steps_per_call": "2"},
    parts=2,
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(SETTINGS, "tiny", TINY)


@pytest.mark.release
def test_seeds_are_run_judged_and_written_and_not_run_again(tiny, tmp_path, capfd):
    arguments = ["tiny", "--seeds", "3", "5", "--jobs", "2", "--runs", str(tmp_path / "r"), "--out", str(tmp_path)]
    assert learning.main(arguments) == 0
    printed = capfd.readouterr().out
    assert "resuming" in printed  # its second part goes on with the first
    assert "Bar: mean -1, least -1: reached." in printed
    setting, _, seeds = outcomes.load(tmp_path / learning.FILE)["tiny"]
    assert [o.seed for o in seeds] == [3, 5]
    for o in seeds:
        steps, returns = (o.evaluations[name] for name in ("environment_steps", "episode_return_mean"))
        assert steps == sorted(steps)
        assert 300 <= steps[-1] == o.environment_steps < 302
        assert all(-1 <= value <= 1 for value in returns)
    assert setting.startswith("dqn on bsuite:catch/0, 300 environment steps, num_envs=2, replay.min_size=50")
    assert str(tmp_path) not in (tmp_path / learning.FILE).read_text()

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "r").rglob("evaluation.json")}
    assert len(before) == 2
    assert learning.main(arguments) == 0
    assert "seed 3 is finished" in capfd.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.release
def test_a_compiled_setting_is_run_as_one_program(monkeypatch, tmp_path):
    monkeypatch.setitem(SETTINGS, "tiny", dataclasses.replace(TINY, environment="jax:catch", compiled=True))
    arguments = ["tiny", "--seeds", "3", "--runs", str(tmp_path / "r"), "--out", str(tmp_path)]
    assert learning.main(arguments) == 0
    assert json.loads((tmp_path / "r" / "seed-3" / "config.json").read_text())["world"] == "compiled"
    written = outcomes.load(tmp_path / learning.FILE)["tiny"]
    assert written.setting.startswith("dqn on jax:catch, 300 environment steps, num_envs=2, compiled, ")
    assert result_pages.Result("tiny", SETTINGS["tiny"], {}, written.seeds).world == "compiled"


@pytest.mark.release
def test_the_seeds_of_a_compiled_setting_can_run_together(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(SETTINGS, "tiny", dataclasses.replace(TINY, environment="jax:catch", compiled=True))
    arguments = ["tiny", "--seeds", "3", "4", "--together", "--runs", str(tmp_path / "r"), "--out", str(tmp_path)]
    assert learning.main(arguments) == 0
    assert {path.parent.name for path in (tmp_path / "r").glob("*/evaluation.json")} == {"s3", "s4"}
    assert [seed.seed for seed in outcomes.load(tmp_path / learning.FILE)["tiny"].seeds] == [3, 4]
    assert learning.main([*arguments[:2], "5", "3", *arguments[4:]]) == 2
    assert "must be consecutive" in capsys.readouterr().err
    monkeypatch.setitem(SETTINGS, "tiny", TINY)
    assert learning.main(arguments) == 2
    assert "not a compiled setting" in capsys.readouterr().err


@pytest.mark.release
def test_a_sigterm_ends_its_runs_too_which_can_go_on(tmp_path):
    command = [sys.executable, "-u", "-m", "benchmarks.learning", "dqn-catch", "--seeds", "0"]
    command += ["--runs", str(tmp_path / "r"), "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("r/seed-0/logs/*")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.terminate()
        said, _ = process.communicate(timeout=60)  # its run writes to the same pipe: that has ended, too
    assert process.returncode == 128 + signal.SIGTERM
    assert "not finished: seed 0 (exit code 143); the same command resumes them." in said
    assert list(tmp_path.glob("r/seed-0/checkpoints/*"))


def test_a_run_of_another_setting_is_not_counted(tiny, tmp_path, capsys):
    experiment = dataclasses.replace(TINY, config={**TINY.config, "learning_rate": "0.5"}).experiment(0, 300, tmp_path)
    (tmp_path / "seed-0").mkdir()
    experiment = dataclasses.replace(experiment, run_dir=str(tmp_path / "seed-0"))
    learning.RunDirectory(experiment.directory).write_config(experiment.describe())
    assert learning.main(["tiny", "--seeds", "0", "--runs", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "config.learning_rate" in capsys.readouterr().err


PROGRAM = {"program": {"actors": 2, "replay_shards": 1}}


@pytest.mark.parametrize(
    ("arrangement", "setting", "told"),
    [
        ({}, TINY, None),
        (PROGRAM, dataclasses.replace(TINY, actors=2), None),
        ({"world": "compiled"}, dataclasses.replace(TINY, compiled=True), None),
        (
            {"program": {"actors": 2, "replay_shards": 1}},
            dataclasses.replace(TINY, actors=4),
            "program.actors is 2 there",
        ),
        ({}, dataclasses.replace(TINY, actors=4), "program.actors is 0 there and 4 here"),
        ({"world": "compiled"}, TINY, "world is 'compiled' there"),
    ],
)
def test_a_finished_run_of_another_arrangement_is_not_counted(arrangement, setting, told, tmp_path):
    experiment = setting.experiment(0, 300, tmp_path)
    rundir = RunDirectory(tmp_path)
    rundir.write_config({**experiment.describe(), **arrangement})
    rundir.write_evaluation({"environment_steps": 300, "returns": [1.0]})
    if told is None:
        assert learning.finished(experiment, setting)
    else:
        with pytest.raises(UsageError, match=told):
            learning.finished(experiment, setting)


def of(seed: int, score: float, fault: str | None = None, late: float = 0.0) -> Outcome:
    curve = {"environment_steps": [50, 100], "episode_return_mean": [0.0, late]}
    return Outcome(seed, score, score - 1, score + 1, 100, 10, 1.0, fault, curve)


def test_the_bar_is_for_the_mean_and_the_least_of_the_seeds():
    found = [of(0, 450.0), of(1, 500.0), of(2, 400.0)]
    setting = Setting("dqn", "gym:CartPole-v1", 100, 1, 450.0, 400.0)
    assert outcomes.passed(setting, found)
    assert outcomes.verdict(setting, found) == "Bar: mean 450, least 400: reached."
    assert not outcomes.passed(dataclasses.replace(setting, mean=451.0), found)
    assert not outcomes.passed(dataclasses.replace(setting, least=401.0), found)
    assert outcomes.passed(dataclasses.replace(setting, mean=None, least=None), found)


def test_a_bar_is_that_nothing_is_lost():
    setting = Setting("alphazero", "board:tic_tac_toe", 100, 1, never_loses=True)
    found = [
        dataclasses.replace(of(seed, 1.0), replies=[[60, 3, 0], [170, 9, lost]]) for seed, lost in ((0, 0), (1, 2))
    ]
    assert outcomes.passed(setting, found[:1])
    assert outcomes.verdict(setting, found[:1]) == "Bar: never loses: reached."
    assert not outcomes.passed(setting, found)
    assert outcomes.verdict(setting, found) == "Bar: never loses: MISSED (seed 1 2 positions)."
    assert outcomes.passed(dataclasses.replace(setting, never_loses=False), found)


def test_a_fault_is_no_pass_whatever_the_score():
    found = [of(0, 500.0), of(1, 500.0, fault="a loss is not finite")]
    setting = Setting("dqn", "gym:CartPole-v1", 100, 1)
    assert not outcomes.passed(setting, found)
    assert outcomes.verdict(setting, found) == "MISSED: seed 1: a loss is not finite."


def test_what_the_seeds_come_to():
    found = [of(seed, score, late=score) for seed, score in enumerate([0.0, 10.0, 12.0, 50.0])]
    summary = outcomes.summarise(Setting("dqn", "gym:CartPole-v1", 100, 1, 11.0), found)
    assert (summary.mean, summary.iqm, summary.least, summary.steady) == (18.0, 11.0, 0.0, 0.5)
    low, high = summary.interval
    assert 0.0 <= low < 11.0 < high <= 50.0


def test_the_table_has_a_row_for_each_seed_and_what_they_come_to():
    header, *rows = outcomes.table([of(0, 2.0), of(7, 5.0)])
    assert header.split()[:1] == ["seed"]
    assert [row.split()[:2] for row in rows] == [
        ["0", "2"],
        ["7", "5"],
        ["mean", "3.5"],
        ["IQM", "3.5"],
        ["least", "2"],
    ]


def test_results_are_of_their_setting_as_it_stands():
    found = outcomes.load(learning.RESULTS / learning.FILE)
    assert found
    assert {name: written.setting for name, written in found.items()} == {name: str(SETTINGS[name]) for name in found}


def test_results_are_written_beside_those_of_other_settings(tmp_path):
    path, setting = tmp_path / learning.FILE, Setting("dqn", "gym:CartPole-v1", 100, 1)
    for name, seeds in (("b", [of(0, 1.0)]), ("a", [of(1, 2.0), of(2, 3.0)]), ("b", [of(3, 4.0)])):
        outcomes.write(path, name, setting, seeds)
    found = outcomes.load(path)
    assert list(found) == ["a", "b"]
    assert [o.score for o in found["a"].seeds] == [2.0, 3.0]
    assert found["b"].seeds == [of(3, 4.0)]
    assert found["b"].setting == str(setting)
    assert outcomes.load(tmp_path / "nothing.json") == {}


def test_the_version_is_that_of_the_runs(tmp_path):
    path, setting = tmp_path / learning.FILE, Setting("dqn", "gym:CartPole-v1", 100, 1)
    made = [dataclasses.replace(of(seed, 1.0), version=version) for seed, version in enumerate(("0.1.0", "0.2.0"))]
    for name, seeds in (("a", made), ("b", made[:1]), ("c", [of(0, 1.0)])):
        outcomes.write(path, name, setting, seeds)
    versions = {name: written.machine["acme-ext"] for name, written in outcomes.load(path).items()}
    assert versions == {"a": "0.1.0, 0.2.0", "b": "0.1.0", "c": acme_ext.__version__}
    # The runs have ended, so that the load is not that before them.
    assert all("load_before" not in written.machine for written in outcomes.load(path).values())


def test_a_run_is_read_with_its_version(tmp_path):
    experiment = TINY.experiment(3, 300, tmp_path)
    rundir = RunDirectory(tmp_path)
    config = experiment.describe()
    rundir.write_config({**config, "run": {**config["run"], "version": "0.0.1"}})
    columns = "environment_steps,learner_steps,wall_time_s,episode_return_mean,loss\n"
    for label in ("evaluator", "learner"):
        loggers.csv_path(rundir, label).write_text(f"{columns}150,2,1.0,0.5,0.1\n300,4,2.0,0.5,0.1\n")
    rundir.write_evaluation({"environment_steps": 300, "returns": [1.0, 0.0]})
    found = outcomes.read(experiment, TINY.parts)
    assert (found.version, found.score, found.fault) == ("0.0.1", 0.5, None)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.release if name == "ppo-doorkey" else ()) for name in SETTINGS]
)
def test_a_setting_can_be_run_and_each_of_its_fields_changes_the_agent(name, tmp_path):
    setting = SETTINGS[name]
    envs.check_environment(setting.environment, **setting.environment_options)
    experiment = setting.experiment(3, setting.steps, tmp_path)
    assert experiment.demos == (None if setting.demos is None else str(DATA / setting.demos))
    experiment = dataclasses.replace(experiment, demos=None)  # which may not have been made here
    described, builder = experiment.describe(), builders.load(setting.agent)().for_environment(setting.environment)
    assert (described["agent"], described["environment"]) == (setting.agent, setting.environment)
    assert (described["seed"], described["run"]["steps"]) == (3, setting.steps)
    assert experiment.builder == configure_builder(builder, setting.config)
    assert (experiment.builder != builder) == bool(setting.config)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dqn-cartpol"], "did you mean 'dqn-cartpole'"),
        (["dqn-catc*", "--runs", "r"], "--runs requires a single setting, and 'dqn-catc*' matches 3"),
        (["dqn-catch", "--jobs", "0"], "--jobs and --steps must be at least 1"),
        (["dqn-catch", "--seeds", "1", "1"], "lists a seed twice"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(arguments, says, capsys):
    assert learning.main(arguments) == 2
    assert says in capsys.readouterr().err


def test_a_seed_that_fails_stops_those_after_it_and_nothing_is_written(tiny, tmp_path, capfd):
    (tmp_path / "r" / "seed-0").mkdir(parents=True)
    (tmp_path / "r" / "seed-0" / "mine.txt").write_text("no run's")
    arguments = ["tiny", "--seeds", "0", "1", "--runs", str(tmp_path / "r"), "--out", str(tmp_path / "o")]
    assert learning.main(arguments) == 2
    captured = capfd.readouterr()
    assert "neither empty nor a run directory" in captured.err
    assert "not finished: seed 0 (exit code 2), seed 1;" in captured.out
    assert not list((tmp_path / "o").iterdir())
    assert not (tmp_path / "r" / "seed-1").exists()


def test_a_pattern_stands_for_all_settings_that_it_fits(monkeypatch):
    monkeypatch.setattr(learning, "_of_setting", lambda name, *_: seen.append(name) or int(name == "dqn-catch"))
    seen = []
    assert learning.main(["dqn-catc*"]) == 1
    assert seen == [name for name in SETTINGS if name.startswith("dqn-catch")]


def test_the_data_of_every_setting_has_a_command():
    assert {setting.demos for setting in SETTINGS.values()} - {None} <= set(RECORDED)


@pytest.mark.release
def test_data_is_made_by_a_command(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(RECORDED, "tiny", Recorded("dqn", "bsuite:catch/0", 50, 2, 20))
    assert recorded.main(["tiny"]) == 0
    assert "27 steps in 3 episodes" in capfd.readouterr().out
    assert Folder(DATA / "tiny").steps == 27  # episodes have nine steps
    assert recorded.main(["tiny"]) == 0  # what is there is not made again
    assert Folder(DATA / "tiny").steps == 27
    assert recorded.main(["tin"]) == 2
    assert "did you mean 'tiny'" in capfd.readouterr().err

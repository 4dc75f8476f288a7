"""Tests of the learning benchmark, with budgets too small to learn anything."""

import csv
import dataclasses
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from acme_ext import builders, envs
from acme_ext.launch import settings as config_settings
from benchmarks import learning, outcomes
from benchmarks.outcomes import Outcome
from benchmarks.settings import SETTINGS, Setting

TINY = Setting(
    "dqn",
    "bsuite:catch/0",
    steps=300,
    num_envs=2,
    statistic="mean",
    bar=-1.0,
    eval_every=100,
    eval_episodes=2,
    config={"replay.min_size": "50", "batch_size": "4", "replay.samples_per_insert": "1", "sgd_steps_per_call": "2"},
    parts=2,
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(SETTINGS, "tiny", TINY)


@pytest.mark.slow
def test_seeds_are_run_judged_and_written_and_not_run_again(tiny, tmp_path, capfd):
    arguments = ["tiny", "--seeds", "3", "5", "--jobs", "2", "--runs", str(tmp_path / "r"), "--out", str(tmp_path)]
    assert learning.main(arguments) == 0
    printed = capfd.readouterr().out
    assert "resuming" in printed  # its second part goes on with the first
    assert "bar -1: reached" in printed
    with open(tmp_path / "tiny.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["seed"] for row in rows} == {"3", "5"}
    assert all(-1 <= float(row["episode_return_mean"]) <= 1 for row in rows)
    steps = [int(row["environment_steps"]) for row in rows if row["seed"] == "3"]
    assert steps == sorted(steps)
    assert 300 <= steps[-1] < 302
    page = (tmp_path / "tiny.md").read_text()
    assert "dqn on bsuite:catch/0, 300 environment steps, num_envs=2, replay.min_size=50" in page
    assert "bar -1: reached" in page
    assert str(tmp_path) not in page
    assert (tmp_path / "tiny.png").read_bytes().startswith(b"\x89PNG")

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "r").rglob("evaluation.json")}
    assert len(before) == 2
    assert learning.main(arguments) == 0
    assert "seed 3 is finished" in capfd.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
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
    assert "not finished: seed 0 (exit code 143); the same command goes on." in said
    assert list(tmp_path.glob("r/seed-0/checkpoints/*"))


def test_a_run_of_another_setting_is_not_counted(tiny, tmp_path, capsys):
    experiment = dataclasses.replace(TINY, config={**TINY.config, "learning_rate": "0.5"}).experiment(0, 300, tmp_path)
    (tmp_path / "seed-0").mkdir()
    experiment = dataclasses.replace(experiment, run_dir=str(tmp_path / "seed-0"))
    learning.RunDirectory(experiment.directory).write_config(experiment.describe())
    assert learning.main(["tiny", "--seeds", "0", "--runs", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "config.learning_rate" in capsys.readouterr().err


def of(seed: int, *returns: float, fault: str | None = None) -> Outcome:
    return Outcome(seed, 100, 10, 1.0, np.array(returns), fault)


def test_the_bar_is_for_the_median_or_the_mean_of_the_seeds():
    found = [of(0, 500.0, 400.0), of(1, 500.0), of(2, 30.0)]
    setting = Setting("dqn", "gym:CartPole-v1", 100, 1, "median", 450.0)
    assert outcomes.passed(setting, found)
    assert outcomes.verdict(setting, found) == "Median 450, bar 450: reached."
    assert not outcomes.passed(dataclasses.replace(setting, bar=451.0), found)
    assert not outcomes.passed(dataclasses.replace(setting, statistic="mean"), found)
    assert outcomes.passed(dataclasses.replace(setting, bar=None), found)


def test_a_fault_is_no_pass_whatever_the_score():
    found = [of(0, 500.0), of(1, 500.0, fault="a loss is not finite")]
    setting = Setting("dqn", "gym:CartPole-v1", 100, 1)
    assert not outcomes.passed(setting, found)
    assert outcomes.verdict(setting, found) == "MISSED: seed 1: a loss is not finite."


def test_the_table_has_a_row_for_each_seed_and_what_they_come_to():
    header, *rows = outcomes.table([of(0, 1.0, 3.0), of(7, 5.0)])
    assert header.split()[:1] == ["seed"]
    assert [row.split()[:2] for row in rows] == [
        ["0", "2"],
        ["7", "5"],
        ["median", "3.5"],
        ["mean", "3.5"],
        ["least", "2"],
        ["greatest", "5"],
    ]


def test_a_page_of_results_is_of_its_setting_as_it_stands():
    pages = [path for path in learning.RESULTS.glob("*.md") if path.stem in SETTINGS]
    assert pages
    for path in pages:
        made = f"{SETTINGS[path.stem]}. Made by `python -m benchmarks.learning {path.stem}`."
        assert made in path.read_text().splitlines(), path.stem


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_can_be_run_and_each_of_its_fields_changes_the_agent(name, tmp_path):
    setting = SETTINGS[name]
    envs.check(setting.environment, **setting.environment_options)
    experiment = setting.experiment(3, setting.steps, tmp_path)
    described, builder = experiment.describe(), builders.load(setting.agent)().for_environment(setting.environment)
    assert (described["agent"], described["environment"]) == (setting.agent, setting.environment)
    assert (described["seed"], described["run"]["steps"]) == (3, setting.steps)
    assert experiment.builder == config_settings.configure(builder, setting.config)
    assert (experiment.builder != builder) == bool(setting.config)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dqn-cartpol"], "did you mean 'dqn-cartpole'"),
        (["dqn-catch", "--jobs", "0"], "--jobs and --steps must be at least 1"),
        (["dqn-catch", "--seeds", "1", "1"], "names a seed twice"),
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

"""The comparison of compiled seeds with those of one process, with budgets too small to learn anything."""

import json

import pytest

from acme_ext import envs
from benchmarks.learning import compiled_seeds, outcomes
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome, write
from benchmarks.learning.settings import SETTINGS


def test_every_pair_is_a_setting_and_an_environment():
    for name, environment in compiled_seeds.PAIRS.items():
        assert not SETTINGS[name].actors
        envs.check_environment(environment)


def test_the_table_holds_both_worlds_and_leaves_out_what_was_not_measured(tmp_path):
    path = tmp_path / "compiled-seeds.json"
    found = {"environment": "jax:CartPole-v1", "steps": 20_000, "score": [1.0, 3.0], "area": [0.5, 1.5]}
    path.write_text(json.dumps({"ppo-cartpole": found, "sac-pendulum": found}))
    curve = {"episode_return_mean": [2.0, 4.0]}
    outcome = Outcome(0, 5.0, 4.0, 6.0, 20_000, 10, 1.0, None, curve)
    write(tmp_path / learning.FILE, "ppo-cartpole", SETTINGS["ppo-cartpole"], [outcome])
    assert compiled_seeds.table(path, tmp_path / learning.FILE)[2:] == [
        "| ppo-cartpole | 20,000 | compiled | 2 | 2 | 1 | 3 | 1 | 0.5 | 1.5 |",
        "| ppo-cartpole | 20,000 | one process | 1 | 5 | 5 | 5 | 3 | 3 | 3 |",
        "| sac-pendulum | 20,000 | compiled | 2 | 2 | 1 | 3 | 1 | 0.5 | 1.5 |",
    ]


def test_results_of_another_budget_are_not_in_the_table(tmp_path):
    path, curve = tmp_path / "compiled-seeds.json", {"episode_return_mean": [2.0, 4.0]}
    found = {"environment": "jax:CartPole-v1", "steps": 2_000, "score": [1.0], "area": [0.5]}
    path.write_text(json.dumps({"ppo-cartpole": found}))
    for steps, rows in ((100_000, 1), (1_000, 1), (2_008, 2)):
        outcome = Outcome(0, 5.0, 4.0, 6.0, steps, 10, 1.0, None, curve)
        write(tmp_path / learning.FILE, "ppo-cartpole", SETTINGS["ppo-cartpole"], [outcome])
        assert len(compiled_seeds.table(path, tmp_path / learning.FILE)[2:]) == rows


@pytest.mark.release
def test_seeds_are_run_in_one_program_and_written(tmp_path, capsys):
    arguments = ["--only", "ppo-cartpole", "--seeds", "2", "--steps", "2000"]
    arguments += ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    assert compiled_seeds.main(arguments) == 0
    written = json.loads((tmp_path / "compiled-seeds.json").read_text())["ppo-cartpole"]
    assert len(written["score"]) == len(written["area"]) == 2
    assert "| ppo-cartpole | 2,000 | compiled | 2 |" in capsys.readouterr().out
    assert "ppo-cartpole" in outcomes.load(learning.RESULTS / learning.FILE)


@pytest.mark.parametrize("wrong", [["--only", "ppo-cartpol"], ["--seeds", "0"], ["--steps", "0"]])
def test_what_can_not_be_asked_for_is_said(wrong, tmp_path, capsys):
    assert compiled_seeds.main([*wrong, "--runs", str(tmp_path)]) == 2
    assert "benchmarks.learning.compiled_seeds: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

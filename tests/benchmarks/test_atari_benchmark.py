"""Tests of the Atari benchmark: its arithmetic on toy scores, and runs with budgets too small to learn anything."""

import csv

import numpy as np
import pytest

from acme_ext.envs.atari import Atari
from acme_ext.errors import UsageError
from benchmarks.learning import atari, atari57
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome
from benchmarks.learning.settings import Setting


def test_the_57_games_are_ones_that_can_be_made():
    assert len(atari57.SCORES) == 57
    assert set(atari57.SCORES) <= set(Atari().names())
    assert all(human > random for random, human in atari57.SCORES.values())


def test_scores_in_the_humans_measure():
    assert atari57.normalized("Pong", -20.7) == 0
    assert atari57.normalized("Breakout", 30.5) == 1
    assert atari57.normalized("Breakout", 1.7 + 2.5 * 28.8) == pytest.approx(2.5)
    assert atari57.normalized("Boxing", -11.9) == pytest.approx(-1.0)  # worse than the random player: 0.1 - 12


def test_aggregates_of_one_seed_by_hand():
    scores = {"a": [0.0], "b": [1.0], "c": [2.0], "d": [5.0], "e": [-1.0], "f": [0.5], "g": [1.5], "h": [7.0]}
    whole = atari57.aggregate(scores)
    # In order: -1, 0, 0.5, 1, 1.5, 2, 5, 7; the middle half is 0.5 to 2.
    assert whole.iqm == (pytest.approx(1.25), None)
    assert whole.median == (pytest.approx(1.25), None)
    assert whole.mean == (pytest.approx(2.0), None)
    # A twentieth of the way over 7 gaps is 0.35 of the first: -1 + 0.35.
    assert whole.percentile_5 == (pytest.approx(-0.65), None)
    assert whole.above_human == 4  # 1 itself is not above


def test_aggregates_of_several_seeds_by_hand():
    whole = atari57.aggregate({"a": [0.0, 2.0], "b": [4.0, 4.0], "c": [0.5, 0.7]})
    # The games' means are 1, 4 and 0.6.
    assert whole.median.value == pytest.approx(1.0)
    assert whole.mean.value == pytest.approx(5.6 / 3)
    assert whole.above_human == 1
    # Of all runs, 0, 0.5, 0.7, 2, 4 and 4, one is cut at each end.
    assert whole.iqm.value == pytest.approx((0.5 + 0.7 + 2 + 4) / 4)


def test_intervals_are_those_of_runs_drawn_anew_within_each_game():
    before = np.random.get_state()[1].copy()
    scores = {"a": [0.0, 2.0], "b": [4.0, 4.0]}
    whole = atari57.aggregate(scores)
    # The mean of a is 0, 1 or 2, with chances 1/4, 1/2 and 1/4, and b's is always 4.
    assert whole.mean.interval == pytest.approx((2.0, 3.0))
    assert whole.percentile_5.interval == pytest.approx((0.2, 2.1))
    assert whole == atari57.aggregate(scores)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # nobody else's randomness is touched


def test_games_that_are_none():
    with pytest.raises(UsageError, match="'Pnog' is not one of the 57 games: did you mean 'Pong'"):
        atari57.check(["Breakout", "Pnog"])
    with pytest.raises(UsageError, match="listed twice"):
        atari57.check(["Pong", "Pong"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dqm"], "there is no agent 'dqm'"),
        (["dqn", "--games", "Pnog"], "not one of the 57 games"),
        (["dqn", "--steps", "0"], "--steps is 0: it must be at least 1"),
        (["dqn", "--eval-episodes", "0"], "--eval-episodes is 0: it must be at least 1"),
        (["dqn", "--max-frames", "30"], "--max-frames is 30: it must be more than the 30 no-ops"),
        (["dqn", "--env-set", "stick=2.0"], "has no option 'stick'"),
        (["dqn", "--actors", "-1"], "--actors is -1: it must not be negative"),
        (["dqn", "--seeds", "1", "1"], "--seeds lists a seed twice"),
        (["dqn", "--set", "learning_rat=1"], "DQN has no setting 'learning_rat'"),
    ],
)
def test_what_cannot_be_is_told(arguments, said, tmp_path, capsys):
    assert atari.main([*arguments, "--out", str(tmp_path), "--runs", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_protocol_is_in_the_command_that_made_a_page():
    options = {**atari.PROTOCOLS["machado"], "max_frames": 6_000, "noop_max": 5}
    setting = Setting("dqn", "atari:GAME", 10, 1, environment_options=options)
    said = atari._command(setting, {"Pong": [Outcome(0, 1.0, 1.0, 1.0, 10, 1, 1.0)]})
    assert said.endswith("--max-frames 6000 --protocol machado --env-set noop_max=5")


def test_the_page_and_the_table(tmp_path):
    def run(seed, *returns):
        return Outcome(seed, float(np.mean(returns)), min(returns), max(returns), 2_000, 10, 3.0)

    setting = Setting(
        "dqn",
        "atari:GAME",
        2_000,
        4,
        eval_episodes=2,
        config={"replay.min_size": "1000"},
        environment_options={"noop_max": 30, "max_frames": 6_000},
    )
    found = {
        "Pong": [run(0, 14.6, 14.6), run(3, -20.7, -20.7)],
        "Breakout": [run(0, 60.0, 58.6), run(3, 59.3)],
    }
    page, table = atari.write(tmp_path / "atari-dqn", setting, found)
    text = page.read_text()
    assert "| Pong | -20.7 | 14.6 | -3.0 | -20.7 | 14.6 | 50.0% |" in text
    assert "| Breakout | 1.7 | 30.5 | 59.3 | 59.3 | 59.3 | 200.0% |" in text
    assert "| mean | 125.0% | 100.0% to 150.0% |" in text
    assert "| games above human | 1 of 2 | |" in text
    assert (
        "`python -m benchmarks.learning.atari dqn --games Pong Breakout --steps 2000 --seeds 0 3 --num-envs 4 "
        "--eval-episodes 2 --max-frames 6000 --set replay.min_size=1000`"
    ) in text
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["game"], row["seed"], float(row["normalised"])) for row in rows] == [
        ("Pong", "0", 1.0),
        ("Pong", "3", 0.0),
        ("Breakout", "0", 2.0),
        ("Breakout", "3", 2.0),
    ]


def test_games_are_run_with_the_protocols_options_and_not_run_again(tmp_path, capsys, monkeypatch):
    asked = {}

    def nothing_runs(setting, experiments, jobs, *, fresh):
        asked.update(experiments)
        return 7

    monkeypatch.setattr(learning, "run_all", nothing_runs)
    arguments = ["apex", "--games", "Pong", "Qbert", "--seeds", "0", "1", "--steps", "500", "--set", "batch_size=8"]
    assert atari.main([*arguments, "--runs", str(tmp_path), "--out", str(tmp_path)]) == 7
    assert list(asked) == ["Pong, seed 0", "Pong, seed 1", "Qbert, seed 0", "Qbert, seed 1"]
    experiment = asked["Qbert, seed 1"]
    assert (experiment.environment, experiment.seed, experiment.steps) == ("atari:Qbert", 1, 500)
    assert experiment.environment_options == {"noop_max": 30, "max_frames": 108_000}
    assert experiment.directory == tmp_path / "Qbert" / "seed-1"
    assert (experiment.builder.config.batch_size, experiment.builder.config.replay.n_step) == (8, 3)
    assert experiment.builder.config.optimizer == "rmsprop"  # the rest is the preset of Atari
    assert (experiment.evaluation.every, experiment.evaluation.final_episodes) == (0, 30)

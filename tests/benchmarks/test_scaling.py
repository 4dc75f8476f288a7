"""The scaling benchmark: what it makes of runs, and one of the smallest program."""

import json
import math

import numpy as np
import pytest

from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory
from benchmarks.speed import scaling
from benchmarks.speed.scaling import Outcome

_STEPS = np.array([100, 200, 300])


def outcome(actors, seed, seconds, returns, rate):
    return Outcome(actors, seed, _STEPS, np.array(seconds, float), np.array(returns, float), rate)


@pytest.fixture
def outcomes():
    return [
        outcome(1, 0, [10, 20, 30], [0, 50, 100], 10),
        outcome(1, 1, [12, 24, 36], [0, 40, 90], 8),
        outcome(4, 0, [3, 6, 9], [0, 60, 100], 33),
        outcome(4, 1, [3, 6, 9], [0, 40, 40], 30),
    ]


def test_the_page_has_medians_their_ranges_and_what_never_was(outcomes):
    lines = scaling.page(outcomes, 90, "What it is.", "x").splitlines()
    assert "| 1 | 9 [8, 10] | 1.00 | 46.67 [43.33, 50] | 2 of 2 | 300 [300, 300] | 33 s [30 s, 36 s] | 1.00 |" in lines
    # Of the second seed nothing reached the bar, so that there is no median of two.
    assert "| 4 | 32 [30, 33] | 3.50 | 40 [26.67, 53.33] | 1 of 2 | - [300, -] | - [9 s, -] |  |" in lines
    lines = scaling.page(outcomes, 40, "What it is.", "x").splitlines()
    assert any("| 2 of 2 | 200 [200, 200] | 6 s [6 s, 6 s] | 0.27 |" in line for line in lines)


def test_a_bar_that_nobody_knows_lies_at_nine_tenths_of_what_all_reached(outcomes):
    assert scaling._bar(outcomes, "gym:CartPole-v1") == 475
    # The means over the seeds come to 95 with 1 actor and to 70 with 4.
    assert scaling._bar(outcomes, "gym:Other-v1") == pytest.approx(63)


def test_the_figure_has_both_panels(outcomes, tmp_path):
    scaling.draw(outcomes, "dqn on x", tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_is_read_by_when_its_steps_were_taken(tmp_path):
    rundir = RunDirectory(tmp_path / "run")
    log = loggers.make_logger(rundir, "actor", step_key="environment_steps")
    for i in range(11):
        log.write({"environment_steps": 10 * i, "wall_time_s": 5.0 + i, "episode_return": 1.0})
    log.close()
    log = loggers.make_logger(rundir, "evaluator", step_key="environment_steps")
    for steps, value in ((50, 3.0), (100, 4.0)):
        log.write({"environment_steps": steps, "wall_time_s": 99.0, "episode_return_mean": value})
    log.close()
    found = scaling.read(2, 7, rundir)
    assert (found.actors, found.seed, found.rate) == (2, 7, pytest.approx(10))
    assert found.seconds.tolist() == [5, 10]
    assert found.reached(3.5) == (100, 10)
    assert found.reached(5) == (math.inf, math.inf)


@pytest.mark.release
def test_the_command_runs_programs_once_and_writes(tmp_path, capsys):
    fields = {"hidden_sizes": "8", "batch_size": "16", "replay.min_size": "100", "replay.samples_per_insert": "4"}
    arguments = ["--environment", "bsuite:catch/0", "--actors", "1", "--seeds", "0", "--steps", "400"]
    arguments += ["--sleep-ms", "0.1", "--eval-episodes", "2", "--runs", str(tmp_path), "--out", str(tmp_path)]
    arguments += [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    assert scaling.main(arguments) == 0
    assert "| 1 | " in capsys.readouterr().out
    name = "scaling-dqn-bsuite-catch-0"
    written = [(tmp_path / f"{name}{ending}").read_bytes() for ending in (".md", ".csv", ".png")]
    assert all(written)
    (run,) = tmp_path.glob("dqn-bsuite-catch-0/sleep-0.1/actors-1/seed-0")
    assert json.loads((run / "config.json").read_text())["program"] == {"actors": 1, "replay_shards": 1}
    before = (run / "evaluation.json").stat().st_mtime_ns
    assert scaling.main(arguments) == 0
    assert (run / "evaluation.json").stat().st_mtime_ns == before


def test_bad_input_is_a_sentence(tmp_path, capsys):
    assert scaling.main(["--agent", "dqm", "--out", str(tmp_path)]) == 2
    assert "dqm" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--seeds", "1", "1"], "--seeds lists a seed twice."),
        (["--actors", "2", "2"], "--actors must list different numbers"),
        (["--actors", "0"], "each at least 1."),
        (["--num-envs", "0"], "--num-envs is 0: it must be at least 1."),
    ],
)
def test_a_run_does_not_count_twice_and_has_a_size(wrong, told, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(scaling.launch, "run", lambda *_, **__: pytest.fail("it began to run"))
    assert scaling.main([*wrong, "--runs", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert told in capsys.readouterr().err

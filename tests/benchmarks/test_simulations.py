"""MuZero by simulations, with a budget too small to learn anything."""

from unittest.mock import Mock

import numpy as np
import pytest

from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory
from benchmarks.learning import simulations


def test_steps_to_the_bar_are_those_of_the_seeds_that_reach_it():
    assert simulations.steps_to_bar(np.array([1_000.0, 3_000.0])) == "2,000"
    assert simulations.steps_to_bar(np.array([1_000.0, np.nan, 4_000.0])) == "2,500 (2 of 3)"
    assert simulations.steps_to_bar(np.array([np.nan])) == "none"


def test_an_arm_says_what_its_runs_differ_in():
    plain, again = simulations.Arm("MuZero", 4), simulations.Arm("Gumbel", 16, 0.5)
    assert plain.config == {"search.gumbel": "false", "search.simulations": "4"}
    assert again.config == {"search.gumbel": "true", "search.simulations": "16", "reanalyze": "0.5"}
    assert (plain.folder, again.folder) == ("muzero-4", "gumbel-16-0.5")


def test_what_can_not_be_is_refused(capsys):
    assert simulations.main(["--gumbel", "4", "4"]) == 2
    assert "--gumbel lists a value twice" in capsys.readouterr().err
    assert simulations.main(["--seeds", "0"]) == 2
    assert simulations.main(["--gumbel", "--muzero", "--reanalyze"]) == 2
    assert simulations.main(["--set", "search.simulations=8"]) == 2
    assert "--set names search.simulations, which --gumbel" in capsys.readouterr().err


class _Result:
    stopped_by = None


def left_by(experiment, on, *, fresh, quiet):
    """Leaves what compiled runs of an experiment would, which took some time; later seeds are better."""
    for each in on.experiments(experiment):
        rundir = RunDirectory(each.directory)
        rundir.write_config({**each.describe(), "world": "compiled"})
        loggers.csv_path(rundir, "evaluator").write_text(
            "environment_steps,episode_return_mean,wall_time_s\n"
            + "".join(f"{600 * (n + 1)},{0.1 * (n + each.seed + 8)},{n + 1}\n" for n in range(2))
        )
        rundir.write_evaluation({"environment_steps": each.steps, "episode_return_mean": 0.1 * (each.seed + 9)})
    return _Result()


ARGUMENTS = ["--steps", "1200", "--eval-every", "600", "--gumbel", "2", "--muzero", "2"]


def test_a_page_has_a_row_for_each_arm_and_finished_runs_are_kept(tmp_path, monkeypatch):
    run = Mock(side_effect=left_by)
    monkeypatch.setattr("acme_ext.launch.run", run)
    arguments = [*ARGUMENTS, "--seeds", "2", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    assert simulations.main(arguments) == 0
    page = (tmp_path / "simulations-catch.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(("| Gumbel", "| MuZero"))]
    assert rows == [
        f"| {arm} | 0.95 | 0.9 | 0.9 | 0.85 | 1,200 (1 of 2) | 2 |"
        for arm in ("Gumbel | 2 | 0", "MuZero | 2 | 0", "Gumbel | 16 | 0.5")
    ]
    assert (
        "`python -m benchmarks.learning.simulations --steps 1200 --eval-every 600 --seeds 2 --gumbel 2 --muzero 2`"
        in page
    )
    assert (tmp_path / "simulations-catch.png").stat().st_size > 1_000
    assert run.call_count == 3
    assert simulations.main(arguments) == 0
    assert run.call_count == 3


def test_fields_that_are_set_reach_every_run_and_the_page(tmp_path, monkeypatch):
    run = Mock(side_effect=left_by)
    monkeypatch.setattr("acme_ext.launch.run", run)
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    assert simulations.main([*ARGUMENTS, "--set", "replay.samples_per_insert=7", "--set", "n_step=3", *places]) == 0
    configs = [call.args[0].builder.config for call in run.call_args_list]
    assert [(c.replay.samples_per_insert, c.n_step) for c in configs] == [(7.0, 3)] * 3
    page = (tmp_path / "simulations-catch.md").read_text()
    assert "--set replay.samples_per_insert=7 --set n_step=3`" in page
    assert "with `replay.samples_per_insert=7`." in page


def test_another_experiments_runs_are_not_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("acme_ext.launch.run", left_by)
    arguments = [*ARGUMENTS, "--seeds", "1", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    assert simulations.main(arguments) == 0
    assert simulations.main([*arguments, "--seed", "1"]) == 2
    assert "holds another run: seed is 0 there and 1 here" in capsys.readouterr().err


@pytest.mark.release
def test_the_runs_are_compiled_ones(tmp_path):
    arguments = [*ARGUMENTS, "--steps", "600", "--seeds", "1", "--reanalyze", "--runs", str(tmp_path / "runs")]
    assert simulations.main([*arguments, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "runs" / "simulations-catch" / "muzero-2" / "evaluation.json").is_file()

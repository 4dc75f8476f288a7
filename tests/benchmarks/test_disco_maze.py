"""The benchmark of the maze without a reward, and what it shares with others, without a run."""

import argparse
import dataclasses
from unittest.mock import Mock

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks.learning import disco_maze, random_coin, seeds
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome
from benchmarks.shared import command


def found():
    curve = {"environment_steps": [5, 9], "episode_return_mean": [0.1, 0.5]}
    return {arm: [Outcome(n, 0.5 + n / 10, 0.0, 1.0, 9, 9, 2.0 + 2 * n, None, curve) for n in range(2)] for arm in "ab"}


def test_the_embeddings_differ_in_their_learning_and_in_nothing_else():
    one, other = (
        dataclasses.asdict(disco_maze.setting(arm, 9).experiment(0, 9, learning.RUNS).builder.config)
        for arm in list(disco_maze.ARMS)[:2]
    )
    assert {name for name in one if one[name] != other[name]} == {"embedding_learning_rate"}
    assert other["embedding_learning_rate"] == 0


def test_the_page_has_a_row_for_each_setting():
    lines = seeds.page(found(), "some", ["What it is.", "", "arm"]).splitlines()
    assert lines[:3] == ["# some", "", "What it is."]
    assert "| a | 0.550 | 0.50 | 0.60 | 0: 0.50, 1: 0.60 | 3 |" in lines
    assert {line.count("|") for line in lines if line.startswith("|")} == {7}


@pytest.mark.parametrize(
    ("module", "arguments", "line"),
    [
        (disco_maze, [], "python -m benchmarks.learning.disco_maze"),
        (disco_maze, ["--seeds", "1", "--fresh"], "python -m benchmarks.learning.disco_maze --seeds 1"),
        (random_coin, ["--betas", "1", "2"], "python -m benchmarks.learning.random_coin --betas 1.0 2.0"),
        (random_coin, ["--steps", "40", "--out", "x"], "python -m benchmarks.learning.random_coin --steps 40"),
    ],
)
def test_the_page_has_the_command_that_makes_it(module, arguments, line, monkeypatch):
    run = Mock(return_value=0)
    monkeypatch.setattr(seeds, "run", run)
    assert module.main(arguments) == 0
    assert run.call_args.args[3][0].startswith(f"`{line}`: ")


def test_a_command_line_has_what_is_not_the_default():
    parser = argparse.ArgumentParser(prog="python -m it")
    parser.add_argument("--few", type=int, nargs="*", default=[1])
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--a-name", default="x")
    parser.add_argument("--runs", default="r")
    said = ["--few", "--set", "a=1", "--set", "b=2 3", "--busy", "--a-name", "y", "--runs", "other"]
    line = "python -m it --few --set a=1 --set 'b=2 3' --busy --a-name y"
    assert command.line(parser, parser.parse_args(said)) == line
    assert command.line(parser, parser.parse_args([])) == "python -m it"


def test_the_figure_has_a_curve_for_each_arm():
    axes = Figure().subplots()
    disco_maze.draw(found(), axes)
    np.testing.assert_allclose(axes.lines[1].get_xydata(), [[5, 0.1], [9, 0.5]])

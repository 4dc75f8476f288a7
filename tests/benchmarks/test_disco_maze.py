"""The benchmark of the maze without a reward, and what it shares with others, without a run."""

import dataclasses

import numpy as np
from matplotlib.figure import Figure

from benchmarks import disco_maze, learning, seeds
from benchmarks.outcomes import Outcome


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


def test_the_figure_has_a_curve_for_each_arm():
    axes = Figure().subplots()
    disco_maze.draw(found(), axes)
    np.testing.assert_allclose(axes.lines[1].get_xydata(), [[5, 0.1], [9, 0.5]])

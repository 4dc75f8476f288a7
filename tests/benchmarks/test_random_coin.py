"""The benchmark of values learned together and apart, with budgets too small to learn anything."""

import dataclasses

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks.learning import random_coin
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome


def test_the_agents_differ_in_how_values_are_learned_and_in_nothing_else():
    one, two = (
        random_coin.setting(agent, 3.0, 1).experiment(0, 1, learning.RUNS).builder for agent in random_coin.AGENTS
    )
    mine, theirs = (dataclasses.asdict(builder.config) for builder in (one, two))
    assert {name for name in mine.keys() & theirs.keys() if mine[name] != theirs[name]} == set()
    np.testing.assert_array_equal(one.config.betas, [0.0, 3.0])
    np.testing.assert_array_equal(one.config.betas, two.config.betas)
    np.testing.assert_allclose(one.config.discounts, two.config.discounts)


def test_the_figure_has_a_line_for_each_agent():
    found = {
        f"{agent} | {beta:g}": [Outcome(seed, 0.5 + seed / 10, 0.0, 1.0, 9, 9, 2.0) for seed in range(2)]
        for agent in random_coin.AGENTS
        for beta in (0.1, 1.0)
    }
    axes = Figure().subplots()
    random_coin.draw(found, axes)
    assert [line.get_label() for line in axes.lines] == list(random_coin.AGENTS)
    np.testing.assert_allclose(axes.lines[1].get_xydata(), [[0.1, 0.55], [1.0, 0.55]])


@pytest.mark.release
def test_pairs_are_run_and_written(tmp_path, monkeypatch):
    monkeypatch.setattr(random_coin, "SIZE", 5)
    monkeypatch.setattr(random_coin, "LIMIT", 10)
    arguments = ["--steps", "300", "--seeds", "1", "--seed", "4", "--betas", "1", "--runs", str(tmp_path / "runs")]
    assert random_coin.main([*arguments, "--out", str(tmp_path)]) == 1  # too few steps to learn from
    assert "| two networks | 1 |" in (tmp_path / "random-coin.md").read_text()
    assert (tmp_path / "runs" / "two-networks-1" / "s4" / "evaluation.json").is_file()

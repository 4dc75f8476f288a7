"""The strength by training time, with a budget too small to learn anything."""

import argparse

import numpy as np
import pytest

from acme_ext.commands.tournament import Held
from benchmarks.learning import strength


def test_the_page_has_what_the_last_copy_won_of_each_opponent():
    first, last, random = 0, 1, 2
    outcomes = {
        (first, last): np.array([-1, -1, 0, -1]),
        (first, random): np.array([1, -1, 1, 1]),
        (last, random): np.array([1, 1, 0, -1]),
    }
    names = ["100 moves", "200 moves", "random"]
    held = Held("connect_four", names, outcomes, np.array([10.0, 20, 0]), np.zeros((3, 2)))
    options = argparse.Namespace(
        game="connect_four",
        steps=200,
        parts=2,
        seed=0,
        num_envs=32,
        games=4,
        opening_moves=2,
        set=["search.gumbel=false"],
    )
    page = strength.page(held, [60.0, 130.0], options, {"cores": 2})
    assert "--seed 0 --set search.gumbel=false`: one compiled run" in page
    assert "--game connect_four --steps 200 --parts 2 --games 4 --seed 0" in page
    rows = [line for line in page.splitlines() if "|" in line]
    assert rows[0].startswith("| 200 moves against ")
    assert rows[2] == "| random | 2 | 1 | 1 | 0.625 |"
    assert rows[5] == "| 200 moves | 20 | 0 to 0 | 5 | 2 | 1 |"


@pytest.mark.release
def test_a_run_is_copied_goes_on_and_plays(tmp_path, capsys):
    arguments = ["--game", "tic_tac_toe", "--parts", "2", "--num-envs", "4", "--opponents", "random", "minimax"]
    arguments += ["--games", "4", "--opening-moves", "0", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    assert strength.main([*arguments, "--steps", "400"]) == 0
    assert "| 400 moves against |" in capsys.readouterr().out
    assert (tmp_path / "strength-tic_tac_toe.png").stat().st_size > 1_000
    copies = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert copies == [f"strength-tic_tac_toe-s0{end}" for end in ("", "-200", "-400")]
    assert strength.main([*arguments, "--steps", "0"]) == 2
    assert strength.main([*arguments, "--steps", "400", "--set", "batch_size=8"]) == 2  # not those of other settings
    assert "holds another run" in capsys.readouterr().err

import numpy as np
import pytest

from acme_ext.agents.agent57.config import Agent57Config
from benchmarks import arms


def test_each_policy_is_played_first_and_then_the_best():
    config = Agent57Config(num_arms=3, bandit_epsilon=0.0, bandit_scale=0.1)
    found = arms.play(config, np.full(60, 2), 2, 0)
    assert found.arm.shape == (60, 2)
    assert np.asarray(found.arm[:3]).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert (np.asarray(found.arm[30:]) == 2).mean() > 0.9
    assert (np.asarray(found.evaluated[30:]) == 2).mean() > 0.9


@pytest.mark.parametrize(("right", "expected"), [([0, 1, 0, 1, 1, 1], 3), ([1, 1, 0, 1], 4), ([1, 1, 1, 0], 0)])
def test_the_delay_is_until_enough_in_a_row(right, expected):
    assert arms.delay(np.array(right, bool), 3) == expected


def test_the_page_has_a_row_for_each_part(tmp_path):
    assert arms.main(["--episodes", "90", "--envs", "2", "--seeds", "2", "--out", str(tmp_path)]) == 0
    rows = [line for line in (tmp_path / "arms.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(arms.BEST)
    assert (tmp_path / "arms.png").read_bytes().startswith(b"\x89PNG")

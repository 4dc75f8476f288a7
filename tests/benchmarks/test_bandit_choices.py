import numpy as np
import pytest

from acme_ext.agents.agent57.config import Agent57Config
from benchmarks.learning import bandit_choices, bandit_choices_trained, bandit_regret


def test_each_policy_is_played_first_and_then_the_best():
    config = Agent57Config(num_arms=3, bandit_epsilon=0.0, bandit_scale=0.1)
    found = bandit_choices.play(config, np.full(60, 2), 2, 0)
    assert found.arm.shape == (60, 2)
    assert np.asarray(found.arm[:3]).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert (np.asarray(found.arm[30:]) == 2).mean() > 0.9
    assert (np.asarray(found.evaluated[30:]) == 2).mean() > 0.9


@pytest.mark.parametrize(("right", "expected"), [([0, 1, 0, 1, 1, 1], 3), ([1, 1, 0, 1], 4), ([1, 1, 1, 0], 0)])
def test_the_delay_is_until_enough_in_a_row(right, expected):
    assert bandit_choices.delay(np.array(right, bool), 3) == expected


@pytest.mark.parametrize(
    ("module", "wrong", "told"),
    [
        (bandit_choices, ["--seeds", "0"], "--seeds is 0: it must be at least 1."),
        (bandit_choices, ["--episodes", "59"], "--episodes is 59: it must be at least 60."),
        (bandit_choices_trained, ["--seeds", "1", "1"], "--seeds lists a seed twice."),
        (bandit_choices_trained, ["--episodes", "5"], "--episodes is 5: it must be at least 6."),
        (bandit_regret, ["--seeds", "0"], "--seeds is 0: it must be at least 1."),
        (bandit_regret, ["--steps", "0"], "--steps is 0: it must be at least 1."),
    ],
)
def test_what_cannot_be_asked_for_is_refused(module, wrong, told, tmp_path, capsys):
    assert module.main([*wrong, "--out", str(tmp_path)]) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_page_has_a_row_for_each_part(tmp_path):
    assert bandit_choices.main(["--episodes", "90", "--envs", "2", "--seeds", "2", "--out", str(tmp_path)]) == 0
    rows = [line for line in (tmp_path / "bandit-choices.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(bandit_choices.BEST)
    assert (tmp_path / "bandit-choices.png").read_bytes().startswith(b"\x89PNG")

import numpy as np

from acme_ext.ops import bandits as ops
from benchmarks.learning import bandit_regret


def test_regret_is_what_the_arms_means_say_was_missed():
    means = np.tile([1.0, 0.25], (10, 1))
    # Each arm once, and then the one that always pays.
    found = bandit_regret.regret(ops.epsilon_greedy(2, 0.0), means, seeds=3)
    np.testing.assert_allclose(found[:, 0], [0, *[0.75] * 9])


def test_another_arm_is_the_best_in_each_quarter():
    assert bandit_regret.drifting(8).argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_page_has_every_bandit_beside_its_bound():
    found = {
        problem: {name: np.ones((5, 2)) for name in bandit_regret.contestants(100)} for problem in ("fixed", "drifting")
    }
    text = bandit_regret.page(found, 100, 2)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(bandit_regret.contestants(100))
    assert sum(row.split("|")[4].strip() != "" for row in rows[1:]) == len(bandit_regret.bounds(100)) == 2

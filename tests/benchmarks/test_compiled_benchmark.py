"""The bare compiled loops: they step, and learn as well as they may."""

import pytest

from benchmarks.speed import compiled_loops


@pytest.mark.release
@pytest.mark.parametrize(
    "make", [compiled_loops.ppo, lambda num_envs: compiled_loops.package_on_cartpole("ppo", num_envs)]
)
def test_a_call_of_ppo_takes_its_batches_steps_but_for_resets(make):
    one = make(4)
    one()  # the package's first call ends when learning begins
    most = 4 * 128 * compiled_loops.BATCHES_A_CALL
    first, later = one(), [one() for _ in range(6)]
    assert 0.8 * most < first < most
    # Longer episodes have fewer resets: something was learned.
    assert first < max(later) <= most


@pytest.mark.release
@pytest.mark.parametrize(
    "make", [compiled_loops.dqn, lambda num_envs: compiled_loops.package_on_cartpole("dqn", num_envs)]
)
def test_a_call_of_dqn_takes_its_ticks_but_for_resets(make):
    one = make(8)
    most = 8 * compiled_loops.TICKS_A_CALL
    first, later = one(), [one() for _ in range(40)]
    assert 0.8 * most < first < most
    assert 0.97 * most < max(later) <= most  # episodes of 50 steps and more

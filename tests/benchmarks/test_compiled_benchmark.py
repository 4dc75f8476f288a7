"""The benchmark of compiled runs: both loops step, and the bare one learns as well as it may."""

import pytest

from benchmarks import compiled


@pytest.mark.slow
@pytest.mark.parametrize("make", [compiled.bare, compiled.compiled])
def test_a_call_takes_its_batches_steps_but_for_resets(make):
    one = make(4)
    most = 4 * 128 * compiled.BATCHES_A_CALL
    first, later = one(), [one() for _ in range(6)]
    assert 0.8 * most < first < most
    # Longer episodes have fewer resets: something was learned.
    assert first < max(later) <= most

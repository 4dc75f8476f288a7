"""Tests of rates by turns."""

import pytest

from benchmarks.shared import measure
from benchmarks.shared.measure import Contestant, Rate


@pytest.fixture
def clock(monkeypatch):
    """A clock that only work moves."""

    class Clock:
        now = 0.0

    monkeypatch.setattr(measure.time, "perf_counter", lambda: Clock.now)
    monkeypatch.setattr(measure.time, "process_time", lambda: Clock.now / 4)
    return Clock


def test_rates_count_work_and_its_finish_but_neither_preparation_nor_the_first_round(clock):
    events = []

    def working(name, durations):
        def work():
            events.append(name)
            clock.now += durations[0] if len(durations) == 1 else durations.pop(0)
            return 10

        return work

    def later(seconds):
        def wait():
            clock.now += seconds

        return wait

    contestants = {
        "quick": Contestant(working("quick", [5.0, 0.5])),  # its first round, which isn't counted, takes long
        "slow": Contestant(working("slow", [1.0]), finish=later(1.0), prepare=later(100.0)),
    }
    rates = measure.rates(contestants, seconds=2.0, rounds=2)
    assert rates["quick"].rounds == (20.0, 20.0)
    assert rates["slow"].rounds == (5.0, 5.0)  # 10 units in a second of work and one of finishing
    assert rates["quick"].cpu_us == pytest.approx(1e6 * 0.25 / 20)
    assert events == ["quick", "slow", "slow", "quick", "quick", "quick", "quick", "slow"]


def test_a_ratio_is_the_median_of_the_rounds_ratios():
    ours, theirs = Rate((10.0, 1.0, 30.0)), Rate((5.0, 1.0, 10.0))
    assert ours.over(theirs) == 2.0
    assert ours.per_second == 10.0


def test_the_best_form_is_the_fastest_and_parts_add_their_times():
    quick, slow = Rate((6.0, 6.0)), Rate((3.0, 3.0))
    assert measure.best([slow, quick]) is quick
    assert measure.one_after_the_other([quick, slow]).rounds == pytest.approx((2.0, 2.0))

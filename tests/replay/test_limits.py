import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acme_ext.errors import UsageError
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.reverb.store import rate_limiter

RATIOS = [0.1, 0.37, 1.0, 1.1, 8.0, 64.0]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"samples_per_insert": 0.0}, "samples_per_insert is 0.0: it must be a positive number, or None for no limit."),
        ({"samples_per_insert": -2.0}, "samples_per_insert is -2.0: it must be a positive number"),
        ({"samples_per_insert": math.nan}, "samples_per_insert is nan: it must be a positive number"),
        ({"samples_per_insert": math.inf}, "samples_per_insert is inf: it must be a positive number"),
        ({"min_size": 0}, "min_size is 0: a table needs at least 1 item"),
        ({"tolerance": 5.0}, "tolerance has no meaning without samples_per_insert: give both or neither."),
        ({"samples_per_insert": 8.0, "tolerance": 7.9}, "tolerance is 7.9: .* = 8 .* give at least 8."),
        ({"samples_per_insert": 0.1, "tolerance": 0.5}, "tolerance is 0.5: .* = 1 .* give at least 1."),
        ({"samples_per_insert": 0.1, "tolerance": math.nan}, "tolerance is nan: for no limit, leave .* out."),
        ({"samples_per_insert": 0.1, "tolerance": math.inf}, "tolerance is inf: for no limit, leave .* out."),
    ],
)
def test_what_could_not_work_is_refused(fields, sentence):
    with pytest.raises(UsageError, match=sentence):
        RateLimit(**fields)


def test_a_table_must_be_able_to_hold_the_smallest_size():
    limit = RateLimit(1.0, min_size=100)
    limit.check_table(100)
    with pytest.raises(UsageError, match=r"at most 99 items .* min_size = 100 on: give min_size <= 99 or a larger"):
        limit.check_table(99)


def test_tolerance_by_default():
    assert RateLimit(8.0).error_buffer == 256
    assert RateLimit(0.1).error_buffer == 32
    assert RateLimit(8.0, tolerance=9.0).error_buffer == 9


def test_samples_allowed_by_hand():
    # 10 inserts to begin with; then each pays for 8 samples, of which 20 may be drawn ahead.
    limit = RateLimit(8.0, min_size=10, tolerance=20.0)
    assert [limit.samples_allowed(n) for n in (0, 9, 10, 11, 110)] == [0, 0, 20, 28, 820]
    # At a tenth of a sample for each insert, ten pay for one.
    limit = RateLimit(0.1, min_size=1, tolerance=1.0)
    assert [limit.samples_allowed(n) for n in (0, 1, 10, 11, 21)] == [0, 1, 1, 2, 3]
    limit = RateLimit(min_size=3)
    assert [limit.samples_allowed(n) for n in (2, 3, 4)] == [0, math.inf, math.inf]


RATIO = st.one_of(st.sampled_from(RATIOS), st.floats(0.01, 100).map(lambda x: round(x, 2)))


@settings(deadline=None)
@example(67.1, 7, True, [179])  # offsets of the two sides are rounded
@example(86.21, 2, True, [8_999])  # their difference is rounded up to the next whole sample
@example(16.08, 50_000, True, [])  # the smallest tolerance is rounded to less than Reverb takes
@given(RATIO, st.integers(1, 200_000), st.booleans(), st.lists(st.integers(0, 100_000), max_size=20))
def test_samples_allowed_agrees_with_reverbs_arithmetic(ratio, min_size, smallest, more):
    limit = RateLimit(ratio, min_size, max(1.0, ratio) if smallest else None)
    rate_limiter(limit)  # Reverb accepts it.
    low = ratio * min_size - limit.error_buffer
    for inserts in (min_size + n for n in more):
        # A sample is allowed if the balance after it is not below the bound (rate_limiter.cc, CanSample).
        allowed = limit.samples_allowed(inserts)
        assert inserts * ratio - allowed >= low or allowed == 0
        assert inserts * ratio - (allowed + 1) < low


@pytest.fixture
def draw():
    """Draws as many samples as a table's limit allows; returns the number drawn in all so far."""
    import reverb
    import tensorflow as tf

    def run(server):
        dataset = reverb.TrajectoryDataset(
            server_address=server.client.server_address,
            table="t",
            dtypes=tf.uint8,
            shapes=tf.TensorShape((1,)),
            max_in_flight_samples_per_worker=100,
            num_workers_per_iterator=1,
            rate_limiter_timeout_ms=30,
        )
        drawn = sum(1 for _ in dataset)
        assert server.counts("t")[1] >= drawn
        return server.counts("t")[1]

    return run


def insert(server, count):
    for _ in range(count):
        server.client.insert(np.uint8(0), {"t": 1.0})


@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("ratio", RATIOS)
def test_samples_allowed_is_what_a_table_allows(serve, draw, ratio, smallest):
    import reverb

    limit = RateLimit(ratio, 7, max(1.0, ratio) if smallest else None)
    uniform, fifo = reverb.selectors.Uniform(), reverb.selectors.Fifo()
    server = serve([reverb.Table("t", uniform, fifo, 20, rate_limiter(limit))])
    # The first samples come with the 7th insert; then the limit alone decides, also when old items leave. Writers that
    # run ahead of readers by more than `burst` would wait.
    burst = int((2 * limit.error_buffer - 1) / ratio)
    inserted = 0
    for more in (6, 1, 1, min(burst, 20), 1, min(burst, 5)):
        insert(server, more)
        inserted += more
        assert draw(server) == limit.samples_allowed(inserted)
    assert server.counts("t") == (inserted, limit.samples_allowed(inserted))


def test_a_part_of_a_limit_begins_no_earlier_and_waits_no_more_than_it_must():
    assert RateLimit(8.0, 10, 80.0).divided(4) == RateLimit(8.0, 3, 20.0)
    assert RateLimit(8.0, 10, 20.0).divided(4) == RateLimit(8.0, 3, 8.0)
    assert RateLimit(0.5, 10, 2.0).divided(4) == RateLimit(0.5, 3, 1.0)
    assert RateLimit(min_size=10).divided(5) == RateLimit(min_size=2)


def test_without_a_ratio_a_table_allows_any_number(serve):
    import reverb

    limit = RateLimit(min_size=5)
    uniform, fifo = reverb.selectors.Uniform(), reverb.selectors.Fifo()
    server = serve([reverb.Table("t", uniform, fifo, 10, rate_limiter(limit))])
    insert(server, 500)  # never blocks
    assert len(list(server.client.sample("t", 1000))) == 1000

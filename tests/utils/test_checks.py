import dataclasses
import math

import pytest

from acme_ext.errors import UsageError
from acme_ext.utils import checks


@dataclasses.dataclass
class Config:
    rate: float | None = 0.5
    sizes: tuple[int, ...] = (2, 1)


@pytest.mark.parametrize(
    ("check", "good", "bad", "says"),
    [
        (checks.positive, [1e-9, 3, None], [0, -1.0, math.nan], "must be greater than 0"),
        (checks.not_negative, [0, 0.0, 7], [-1, math.nan], "must not be negative"),
        (checks.share, [0, 1.0, 0.5], [-0.1, 1.01, math.nan], r"must lie in \[0, 1\]"),
    ],
)
def test_numbers_are_refused_by_their_field(check, good, bad, says):
    for value in good:
        check(Config(rate=value), "rate")
    for value in bad:
        with pytest.raises(UsageError, match=f"^rate is {value}: it {says}"):
            check(Config(rate=value), "rate")


def test_layers_have_units():
    checks.layer_sizes(Config(), "sizes")
    for sizes in ((), (3, 0), (-1,)):
        with pytest.raises(UsageError, match=r"^sizes is \(.*there must be a layer, and each needs at least 1 unit"):
            checks.layer_sizes(Config(sizes=sizes), "sizes")


def test_every_field_that_is_named_is_looked_at():
    with pytest.raises(UsageError, match="rate is 2"):
        checks.share(dataclasses.make_dataclass("Two", [("first", float), ("rate", float)])(0.5, 2), "first", "rate")

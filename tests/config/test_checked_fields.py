import dataclasses
import itertools
import math
import typing
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

from acme_ext.config.fields import Checked, check_types
from acme_ext.config.types import (
    LayerSizes,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    PositiveShare,
    Share,
    hints_of,
)
from acme_ext.errors import UsageError


def config_of(hint, value):
    """A checked dataclass with a field `rate`, and one before it."""
    fields = [("first", Share), ("rate", hint)]
    return dataclasses.make_dataclass("Config", fields, bases=(Checked,))(0.5, value)


@pytest.mark.parametrize(
    ("hint", "good", "bad", "says"),
    [
        (Positive, [1e-9, 3], [0, -1.0, math.nan], "must be greater than 0"),
        (PositiveInt, [1, 3], [0, -1], "must be at least 1"),
        (NonNegative, [0, 0.0, 7], [-1, math.nan], "must not be negative"),
        (NonNegativeInt, [0, 7], [-1], "must not be negative"),
        (Share, [0, 1.0, 0.5], [-0.1, 1.01, math.nan], r"must lie in \[0, 1\]"),
        (PositiveShare, [1e-9, 1.0], [0.0, math.nan], "must be greater than 0"),
        (PositiveShare, [], [1.01], r"must lie in \[0, 1\]"),
    ],
)
def test_numbers_are_refused_by_their_field(hint, good, bad, says):
    for value in (*good, None):
        config_of(hint | None, value)
    for value in good:
        config_of(hint, value)
    for value, kind in itertools.product(bad, (hint, hint | None)):
        with pytest.raises(UsageError, match=f"^rate is {value}: it {says}"):
            config_of(kind, value)


@pytest.mark.parametrize(
    ("hint", "bad", "says"),
    [
        (Literal["mean", "max"], "median", "rate is 'median': it must be one of mean, max"),
        (bool, 1, "rate is 1: it must be true or false"),
        (PositiveInt, "3", "rate is '3': it must be a whole number"),
        (Positive | None, "3", "rate is '3': it must be a number or none"),
    ],
)
def test_values_of_another_type_are_refused_at_creation(hint, bad, says):
    with pytest.raises(UsageError, match=f"^{says}"):
        config_of(hint, bad)


def test_layers_have_units():
    config_of(LayerSizes, (2, 1))
    for sizes in ((), (3, 0), (-1,)):
        with pytest.raises(UsageError, match=r"^rate is \(.*there must be a layer, and each needs at least 1 unit"):
            config_of(LayerSizes, sizes)


def test_a_field_that_is_declared_anew_keeps_its_rules():
    @dataclasses.dataclass
    class Base(Checked):
        rate: Positive = 0.5

    @dataclasses.dataclass
    class Optional(Base):
        rate: float | None = None  # type: ignore[assignment]

    Optional()
    for cls in (Base, Optional):
        with pytest.raises(UsageError, match=r"^rate is -1.0: it must be greater than 0"):
            cls(-1.0)
    with pytest.raises(UsageError, match=r"^rate is None: it must be a number"):
        Base(None)  # type: ignore[arg-type]


@dataclasses.dataclass
class Inner:
    depth: int = 1


@dataclasses.dataclass
class Full:
    rate: float = 0.5
    count: int = 1
    flag: bool = False
    maybe: float | None = None
    sizes: tuple[int, ...] = (2, 1)
    kind: Literal["scan", "unroll"] = "scan"
    inner: Inner = dataclasses.field(default_factory=Inner)
    function: Callable[[int], int] | None = None
    anything: Any = None


def test_values_of_their_types_are_taken():
    check_types(Full())
    check_types(Full(3, np.int32(2), True, np.float32(0.5), [1], "unroll", Inner(4), abs, "x"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"rate": "fast"}, "rate is 'fast': it must be a number."),
        ({"rate": True}, "rate is True: it must be a number."),
        ({"rate": None}, "rate is None: it must be a number."),
        ({"count": 1.0}, "count is 1.0: it must be a whole number."),
        ({"flag": 1}, "flag is 1: it must be true or false."),
        ({"maybe": "x"}, "maybe is 'x': it must be a number or none."),
        ({"sizes": 64}, "sizes is 64: it must be whole numbers such as 64,64."),
        ({"sizes": (64, 0.5)}, "sizes is (64, 0.5): it must be whole numbers such as 64,64."),
        ({"kind": "loop"}, "kind is 'loop': it must be one of scan, unroll."),
        ({"inner": Inner}, "inner is the class Inner: it must be an object of Inner."),
        ({"inner": Inner("deep")}, "inner.depth is 'deep': it must be a whole number."),
        ({"function": "abs"}, "function is 'abs': it must be a function or its module:name or none."),
    ],
)
def test_a_value_of_another_type_is_told_by_its_field(fields, told):
    with pytest.raises(UsageError) as refusal:
        check_types(Full(**fields))
    assert str(refusal.value) == told


@pytest.mark.parametrize("hint", [Positive, NonNegativeInt, Share, LayerSizes])
def test_what_can_not_be_compared_is_told_by_its_type(hint):
    with pytest.raises(UsageError, match=r"^rate is 'fast': it must be .*number.* or none"):
        config_of(hint | None, "fast")


def test_one_unknown_name_in_a_class_leaves_the_other_fields_their_types():
    @dataclasses.dataclass(frozen=True)
    class Config(Checked):
        rate: "Positive" = 0.5
        shape: "Nowhere | None" = None  # type: ignore[name-defined]  # noqa: F821

    assert hints_of(Config) == {"rate": float, "shape": Any}
    for value, says in (("x", "must be a number"), (-1.0, "must be greater than 0")):
        with pytest.raises(UsageError, match=f"^rate is .*: it {says}"):
            Config(rate=value)  # type: ignore[arg-type]


def test_a_function_that_is_a_dataclass_has_its_own_rules():
    @dataclasses.dataclass(frozen=True)
    class Make:
        gravity: float = 9.8

        def __call__(self):
            return self.gravity

    config_of(Callable[[], Any], Make(gravity="much"))  # type: ignore[arg-type]


class Shape(typing.TypedDict):
    width: int


class Maker(typing.Protocol):
    def make(self) -> int: ...


@pytest.mark.parametrize("hint", [Any, Shape, Maker, typing.TypeVar("T")])
def test_a_type_that_can_not_be_checked_allows_every_value(hint):
    config_of(hint, "x")


def test_an_array_is_no_choice():
    with pytest.raises(UsageError, match=r"^rate is array\(.*: it must be one of a, b"):
        config_of(Literal["a", "b"], np.array(["a", "b"]))

import dataclasses
import json
from typing import Literal, Optional

import pytest

from acme_ext.config.assignments import replace_fields, restore_config, split_assignments
from acme_ext.config.types import parse_literal
from acme_ext.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Config:
    count: int = 1
    rate: float = 0.5
    flag: bool = False
    name: str = "x"
    sizes: tuple[int, ...] = (64, 64)
    rates: tuple[float, ...] = ()
    maybe_count: int | None = None
    maybe_rate: float | None = 1.0
    maybe_sizes: tuple[int, ...] | None = None
    kind: Literal["scan", "unroll"] = "scan"
    maybe_kind: Literal["scan", "unroll"] | None = None
    old_style: Optional[int] = None  # noqa: UP045 -- somebody else's config may be written so


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("count", "3", 3),
        ("count", "-3", -3),
        ("count", "1_000", 1_000),
        ("count", 7, 7),
        ("rate", 0.25, 0.25),
        ("flag", True, True),
        ("sizes", (32, 16), (32, 16)),
        ("maybe_count", None, None),
        ("count", "2e3", 2_000),
        ("rate", "3e-4", 3e-4),
        ("rate", "1", 1.0),
        ("rate", "-0.5", -0.5),
        ("flag", "true", True),
        ("flag", "False", False),
        ("name", "adam", "adam"),
        ("name", "3", "3"),
        ("name", "a=b", "a=b"),
        ("name", "", ""),
        ("sizes", "32", (32,)),
        ("sizes", "32,16", (32, 16)),
        ("sizes", "(32, 16)", (32, 16)),
        ("sizes", "[32]", (32,)),
        ("sizes", "()", ()),
        ("rates", "1,0.5", (1.0, 0.5)),
        ("maybe_count", "none", None),
        ("maybe_count", "7", 7),
        ("maybe_rate", "None", None),
        ("maybe_rate", "2", 2.0),
        ("maybe_sizes", "none", None),
        ("maybe_sizes", "8,8", (8, 8)),
        ("kind", "unroll", "unroll"),
        ("maybe_kind", "unroll", "unroll"),
        ("maybe_kind", "none", None),
        ("old_style", "none", None),
        ("old_style", "5", 5),
    ],
)
def test_text_becomes_the_type_of_its_field(field, text, value):
    assignment = split_assignments([f"{field} = {text}"])
    config = replace_fields(Config(), assignment)
    got = getattr(config, field)
    assert got == value
    assert type(got) is type(value)
    if isinstance(value, tuple):
        assert [type(item) for item in got] == [type(item) for item in value]
    assert dataclasses.replace(config, **{field: getattr(Config(), field)}) == Config()


@pytest.mark.parametrize(
    ("field", "text", "needed"),
    [
        ("count", "many", "a whole number"),
        ("count", "2.5", "a whole number"),
        ("count", "64.0", "a whole number"),
        ("count", "2.5e0", "a whole number"),
        ("count", "true", "a whole number"),
        ("count", "none", "a whole number"),
        ("count", "1,2", "a whole number"),
        ("count", "1e999", "a whole number"),
        ("count", "", "a whole number"),
        ("rate", "fast", "a number"),
        ("rate", "True", "a number"),
        ("rate", "1" + "0" * 400, "a number"),
        ("flag", "1", "true or false"),
        ("flag", "yes", "true or false"),
        ("sizes", "64,big", "whole numbers such as 64,64"),
        ("sizes", "64,1.5", "whole numbers such as 64,64"),
        ("sizes", "64,true", "whole numbers such as 64,64"),
        ("sizes", "none", "whole numbers such as 64,64"),
        ("rates", "a", "numbers such as 0.5,0.5"),
        ("maybe_count", "x", "a whole number or none"),
        ("kind", "loop", "one of scan, unroll"),
        ("kind", "none", "one of scan, unroll"),
        ("maybe_kind", "loop", "one of scan, unroll or none"),
        ("old_style", "x", "a whole number or none"),
    ],
)
def test_a_value_of_another_type_is_refused(field, text, needed):
    with pytest.raises(UsageError) as refusal:
        replace_fields(Config(), {field: text})
    assert str(refusal.value) == f"{field} is {text!r}: it must be {needed}."


def test_an_unknown_field_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"Config has no field 'siezs': did you mean 'sizes'.*\?"):
        replace_fields(Config(), {"siezs": "3"})
    with pytest.raises(UsageError, match=r"Config has no field 'qq': valid: count, flag,"):
        replace_fields(Config(), {"qq": "3"})


@pytest.mark.parametrize("text", ["learning_rate", "=3", ""])
def test_what_is_no_assignment_is_refused(text):
    with pytest.raises(UsageError, match="write name=value"):
        split_assignments([text])


def test_the_last_of_two_assignments_counts():
    assert split_assignments(["a=1", "b=2", "a=3"]) == {"a": "3", "b": "2"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.5", 0.5), ("true", True), ("False", False), ("hard", "hard"), ("(1, 2)", (1, 2)), ("'3'", "3")],
)
def test_an_option_of_an_environment_is_what_it_is_written_as(text, value):
    got = parse_literal(text)
    assert got == value
    assert type(got) is type(value)


def test_json_gives_a_config_back():
    config = Config(count=3, sizes=(5, 6, 7), rates=(0.25,), maybe_sizes=(1,), maybe_rate=None, kind="unroll")
    assert restore_config(Config, json.loads(json.dumps(dataclasses.asdict(config)))) == config
    assert restore_config(Config, {}) == Config()


def test_json_of_another_version_is_refused_by_the_field():
    with pytest.raises(UsageError, match=r"Config has no field 'rat': did you mean 'rate'"):
        restore_config(Config, {"rat": 0.5})

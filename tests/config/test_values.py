import dataclasses
import functools
import json
from typing import NamedTuple

import numpy as np
import pytest

from acme_ext.config.values import describe_value, display_name, load_object, named, restore_value
from acme_ext.errors import UsageError


def function(x=0):
    return x


@dataclasses.dataclass(frozen=True)
class Config:
    size: int = 3
    make: object = function
    inner: object = None


@dataclasses.dataclass(frozen=True)
class Factory:
    size: int

    def __call__(self):
        return self.size


HERE = "test_values"


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (None, None),
        ((1, 2.5, "a"), [1, 2.5, "a"]),
        (np.float32([1, 2]), [1.0, 2.0]),
        (function, f"{HERE}:function"),
        (Config, f"{HERE}:Config"),
        (
            Config(inner=Config()),
            {
                "size": 3,
                "make": f"{HERE}:function",
                "inner": {"size": 3, "make": f"{HERE}:function", "inner": None},
            },
        ),
        (named("mine", lambda: 3), {"named": "mine"}),
        (functools.partial(function, 4, x=5), {"partial": f"{HERE}:function", "arguments": [4], "keywords": {"x": 5}}),
        (Factory(4), {"object": f"{HERE}:Factory", "keywords": {"size": 4}}),
    ],
)
def test_what_a_value_is_described_by(value, described):
    assert json.loads(json.dumps(describe_value(value, "it"))) == described


def test_a_description_gives_the_function_back():
    assert restore_value(describe_value(function, "it")) is function
    assert restore_value(describe_value(functools.partial(function, x=7), "it"))() == 7
    assert restore_value(describe_value(Factory(4), "it"))() == 4
    assert restore_value("residual") == "residual"
    with pytest.raises(UsageError, match="'mine' is known only to the script or notebook"):
        restore_value({"named": "mine"})


class Pair(NamedTuple):
    left: object
    right: object


@pytest.mark.parametrize(
    "value",
    [
        "gym:CartPole-v1",
        (6, (7, "a:b")),
        [1, [2.5, "a"], None, True],
        {"name": "a:b", "inner": {"sizes": (1, 2)}},
        {"text": 3, "partial": "x"},
        {1: "a", (2, 3): "b:c"},
        Config(size=7, inner=Config(make=(function, Config))),
        Pair("x:y", Factory(2)),
        [function, Factory],
        np.arange(6, dtype=np.int16).reshape(2, 3),
    ],
)
def test_what_a_function_is_given_is_given_back(value):
    made = functools.partial(function, value), functools.partial(function, x=value), Factory(value)
    for each in (*made, {"make": value}):
        described = json.loads(json.dumps(describe_value(each, "it")))
        restored = restore_value(described)
        found = restored["make"] if each is not made[0] and isinstance(each, dict) else restored()
        assert type(found) is type(value)
        np.testing.assert_equal(found, value)


def test_what_has_no_name_is_refused_with_what_to_do():
    def local():
        pass

    for value in (lambda: 3, local, Config().__eq__):
        with pytest.raises(UsageError, match=r"^the torso is .*: define it at the top level .*launch\.named"):
            describe_value(value, "the torso")


def test_a_function_of_a_script_or_notebook_is_known_by_its_name_there(monkeypatch):
    monkeypatch.setattr(function, "__module__", "__main__")
    assert describe_value(function, "it") == {"named": "__main__:function"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (named("mine", lambda: 0), "mine"),
        (functools.partial(function, x=3), f"{__name__}:function"),
        (function, f"{__name__}:function"),
        ("gym:CartPole-v1", "gym:CartPole-v1"),
    ],
)
def test_what_is_described_is_shown_by_its_name(value, says, monkeypatch):
    assert display_name(describe_value(value, "it")) == says
    monkeypatch.setattr(function, "__module__", "__main__")
    assert display_name(describe_value(function, "it")) == "function"


def test_a_named_function_is_the_function():
    assert named("mine", function)(x=3) == 3


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "is not of the form module:name"),
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("json:dmps", r"json has no 'dmps' \(in 'json:dmps'\): did you mean 'dumps'"),
        ("acme_ext.config.values:Named.nme", "Named has no 'nme'"),
    ],
)
def test_a_name_of_nothing_is_refused(name, says):
    with pytest.raises(UsageError, match=says):
        load_object(name)


@pytest.mark.parametrize("source", ["raise RuntimeError('not today')", "import no_such_thing_at_all"])
def test_a_module_that_fails_to_be_imported_is_named_with_its_error(tmp_path, monkeypatch, source):
    (tmp_path / "fails_at_import.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UsageError, match=r"the module 'fails_at_import' can't be imported: .*(not today|no_such_thing)"
    ):
        load_object("fails_at_import:f")

"""The fields in which two descriptions, such as those of two runs, differ."""

from collections.abc import Mapping
from typing import Any

_OPTIONS = "environment_options"  # of the environment's family, or of the user's function


class _Absent:
    """The value that stands for a field which one of two configs doesn't have."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens a nested mapping to {dotted name: value}; lists and empty mappings are values."""
    fields = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            fields.update(flatten(value, f"{prefix}{name}."))
        else:
            fields[f"{prefix}{name}"] = value
    return fields


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the fields, by dotted name, in which two mappings from JSON differ, as (there, here).

    A field that is absent there and None here is not a difference: a later version has added it, and it is not used.
    For an option of the environment it is one, because None may replace another default.
    """
    flat, others = flatten(there), flatten(here)
    pairs = {field: (flat.get(field, ABSENT), others.get(field, ABSENT)) for field in {**flat, **others}}
    # The texts are compared too, because NaN is not equal to itself.
    added = {name for name, (a, b) in pairs.items() if a is ABSENT and b is None and name.split(".")[0] != _OPTIONS}
    same = {field for field, (a, b) in pairs.items() if a == b or repr(a) == repr(b)} | added
    return {field: pair for field, pair in pairs.items() if field not in same}

"""Checks of the fields of dataclasses and of users' functions and classes; UsageErrors name what is wrong."""

import dataclasses
import difflib
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

from acme_ext.config.types import MISFIT, Rule, describe_type, fit_value, hints_of, rules_of
from acme_ext.config.values import Named
from acme_ext.errors import UsageError

_NEAR_MISS = 0.9  # similarity, as of difflib, above which a new field's name is taken for a misspelt one


class Checked:
    """A dataclass that checks its values at creation: by their types, and by the rules of types such as `PositiveInt`.

    None is valid if the type allows it. A field that a subclass declares again keeps its rules. NumPy's numbers become
    plain ones, and lists become tuples.
    """

    def __post_init__(self):
        check_fields(self)


def check_seed(value: int) -> None:
    """Raises UsageError if a run's or a command's seed is out of range."""
    if not 0 <= value < 2**31:
        raise UsageError(f"seed is {value}: it must lie in [0, 2**31).")


def check_fields(config: Any, prefix: str = "") -> None:
    """Raises UsageError if a field of a dataclass doesn't have its declared type, or violates a rule of it.

    Messages put the prefix before the field's name.
    """
    check_types(config, prefix)
    for name, rule, optional in _rules(type(config)):
        value = getattr(config, name)
        if not (value is None and optional) and not rule.holds(value):
            raise UsageError(f"{prefix}{name} is {value}: {rule.wanted}.")


@functools.cache
def _rules(cls: type) -> list[tuple[str, Rule, bool]]:
    """Returns the rules of a class, with their fields and whether the field may be None."""
    found: dict[tuple[str, Rule], None] = {}
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        hints |= hints_of(base, include_extras=True)
        for name, hint in hints.items():
            found |= {(name, rule): None for rule in rules_of(hint)}
    fields = {field.name for field in dataclasses.fields(cls)}
    return [(name, rule, type(None) in typing.get_args(hints[name])) for name, rule in found if name in fields]


def check_types(config: Any, prefix: str = "") -> None:
    """Raises UsageError if a field of a dataclass, or of a nested one, doesn't have its declared type.

    NumPy's numbers in the fields become plain ones, and lists become tuples, see `types.fit_value`.
    """
    hints = hints_of(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints.get(field.name, Any)
        if (fitted := check_value(f"{prefix}{field.name}", value, hint)) is not value:
            object.__setattr__(config, field.name, fitted)
        if dataclasses.is_dataclass(value) and not callable(value):  # a function of the user's has its own rules
            check_types(value, f"{prefix}{field.name}.")


def check_value(what: str, value: Any, hint: Any) -> Any:
    """Returns a value as its type has it, see `types.fit_value`; raises UsageError if the type doesn't allow it."""
    if (fitted := fit_value(value, hint)) is MISFIT:
        shown = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
        raise UsageError(f"{what} is {shown}: it must be {describe_type(hint)}.")
    for rule in rules_of(hint):
        if fitted is not None and not rule.holds(fitted):
            raise UsageError(f"{what} is {fitted}: {rule.wanted}.")
    return fitted


def check_accepts(what: str, function: Callable[..., Any], *arguments: str, **options: Any) -> None:
    """Raises UsageError if a function can't be called with these positional arguments and keyword options.

    Args:
        what: what the function is, for the message.
        function: the user's function.
        arguments: names of the positional arguments.
        options: keyword arguments.
    """
    try:
        inspect.signature(function.function if isinstance(function, Named) else function).bind(*arguments, **options)
    except TypeError as error:
        name, called = function_name(function), ", ".join([*arguments, *options])
        raise UsageError(f"{what} is {name}, which can't be called with ({called}): {error}.") from None


def make_checked(what: str, function: Callable[..., Any], kind: Any, **arguments: Any) -> Any:
    """Calls a user's function with positional arguments and returns the result.

    Raises:
        UsageError: the function can't be called with them, or returns an object that is not a `kind`.
    """
    check_accepts(what, function, *arguments)
    return check_made(f"{what} is {function_name(function)}, which", function(*arguments.values()), kind)


def check_made(what: str, value: Any, kind: Any) -> Any:
    """Returns what a user's function has made; raises UsageError if it is not a `kind`."""
    if isinstance(kind, type) and kind is not Any and not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise UsageError(f"{what} makes {value!r}: it must make {article} {kind.__name__}.")
    return value


def check_declarations(cls: type) -> None:
    """Raises UsageError if a subclass of a dataclass sets a field in a way that dataclasses ignore, or misspells one.

    A new field whose name is nearly that of a field of a base class is taken for a misspelt one.
    """
    known: set[str] = set()
    for base in reversed(cls.__mro__):
        own = [name for name, hint in vars(base).get("__annotations__", {}).items() if "ClassVar" not in str(hint)]
        if dataclasses.is_dataclass(base):
            defaults = {field.name: field.default for field in dataclasses.fields(base)}
            given = own if "__dataclass_fields__" not in vars(base) else []
            given += [
                name
                for name, value in vars(base).items()
                if value is not defaults.get(name, value) and not inspect.isdatadescriptor(value)  # a slot
            ]
            if given:
                raise UsageError(
                    f"{base.__name__}.{given[0]} is no field: give it a type, and the class the decorator "
                    "@dataclasses.dataclass(frozen=True)."
                )
            for name, meant in _misspelt(own, known):
                raise UsageError(
                    f"{base.__name__}.{name} is nearly the name of the field {meant!r}: write {meant!r}, or choose a "
                    "name that can't be confused with it."
                )
        known |= set(own)


def _misspelt(names: list[str], known: set[str]) -> Iterator[tuple[str, str]]:
    """Yields the names that are nearly one of the known names, but not one of them, each with that one."""
    for name in names:
        if name not in known and (close := difflib.get_close_matches(name, known, n=1, cutoff=_NEAR_MISS)):
            yield name, close[0]


def function_name(function: Any) -> str:
    """Returns a function's name for a message."""
    return function.name if isinstance(function, Named) else getattr(function, "__qualname__", repr(function))

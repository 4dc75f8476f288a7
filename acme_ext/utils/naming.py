"""Names of functions and classes, `module:name`, with which a run's config records them."""

import dataclasses
import functools
import importlib
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from acme_ext.errors import UsageError, nearest


@dataclasses.dataclass(frozen=True)
class Named:
    """A function that is recorded under a name that the user has chosen; it is called like the function."""

    name: str
    function: Callable[..., Any]

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.function(*arguments, **options)


def named(name: str, function: Callable[..., Any]) -> Named:
    """Gives a function a name of your choice, for functions that can't be imported, such as lambdas and closures.

    A run with such a function can be resumed and evaluated from Python only.
    """
    return Named(name, function)


def load(name: str) -> Any:
    """Imports and returns the object `module:name`.

    Raises:
        UsageError: there is no such module, its import fails, or it has no such name.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise UsageError(f"{name!r} is not of the form module:name.")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UsageError(
                f"there is no module {module_name!r} (in {name!r}); modules are looked for in the current folder, in "
                "those of PYTHONPATH and among what is installed."
            ) from None
        raise UsageError(f"the module {module_name!r} can't be imported: {_last_line(error)}") from error
    except Exception as error:
        raise UsageError(f"the module {module_name!r} can't be imported: {_last_line(error)}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            where = getattr(found, "__name__", module_name)
            public = [each for each in vars(found) if not each.startswith("_")]
            raise UsageError(f"{where} has no {part!r} (in {name!r}): {nearest(part, public)}")
        found = getattr(found, part)
    return found


def name_of(value: Any) -> str | None:
    """Returns the `module:name` from which any process can import a function or class; None if there is none."""
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not path or module == "__main__" or "<" in path:
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return f"{module}:{path}" if found is value else None


def describe(value: Any, what: str) -> Any:
    """Returns a value as JSON types: functions and classes by name, and dataclasses by their fields.

    Args:
        value: a value from a config or builder.
        what: what the value is, for the message.

    Raises:
        UsageError: it holds a function without a name.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Named):
        return {"named": value.name}
    if isinstance(value, functools.partial):
        return {
            "partial": describe(value.func, what),
            "arguments": [describe(each, what) for each in value.args],
            "keywords": {name: describe(each, what) for name, each in value.keywords.items()},
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        if callable(value):  # a callable object, described by its class and fields
            made_of = {field.name: describe(getattr(value, field.name), what) for field in fields}
            return {"object": describe(type(value), what), "keywords": made_of}
        return {field.name: describe(getattr(value, field.name), f"{what}.{field.name}") for field in fields}
    if isinstance(value, Mapping):
        return {str(name): describe(each, f"{what}.{name}") for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [describe(each, what) for each in value]
    if tolist := getattr(value, "tolist", None):  # NumPy's, which is not imported here
        return tolist()
    if (name := name_of(value)) is not None:
        return name
    path = getattr(value, "__qualname__", "<")
    if getattr(value, "__module__", None) == "__main__" and "<" not in path:  # of a script or notebook
        return {"named": f"__main__:{path}"}
    shown = f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', type(value).__name__)}"
    raise UsageError(
        f"{what} is {shown}, which no other process could find by its name: define it at the top level of a module "
        "that can be imported, or give it a name by launch.named(name, function), with which the run can be resumed "
        "from Python only."
    )


def restore(described: Any) -> Any:
    """Returns the value that `describe` described; raises UsageError for a function that only its script has."""
    if isinstance(described, Mapping) and "named" in described:
        raise UsageError(
            f"{described['named']!r} is known only to the script or notebook that made the run: resume it from there."
        )
    if isinstance(described, Mapping) and "partial" in described:
        arguments = [restore(each) for each in described["arguments"]]
        keywords = {name: restore(each) for name, each in described["keywords"].items()}
        return functools.partial(restore(described["partial"]), *arguments, **keywords)
    if isinstance(described, Mapping) and "object" in described:
        return restore(described["object"])(**{name: restore(each) for name, each in described["keywords"].items()})
    if isinstance(described, str) and ":" in described:
        return load(described)
    return described


def said(described: Any) -> str:
    """Returns a readable name for a described function or class."""
    if isinstance(described, Mapping):
        for kind in ("named", "partial", "object"):
            if kind in described:
                return said(described[kind]).removeprefix("__main__:")
    return str(described)


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()

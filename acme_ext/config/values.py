"""Values as JSON, and back: functions and classes are recorded by name, `module:name`."""

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


def load_object(name: str) -> Any:
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
            public = [name for name, value in vars(found).items() if callable(value) and not name.startswith("_")]
            raise UsageError(f"{where} has no {part!r} (in {name!r}): {nearest(part, public)}")
        found = getattr(found, part)
    return found


def importable_name(value: Any) -> str | None:
    """Returns the `module:name` from which any process can import a function or class; None if there is none."""
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not path or module == "__main__" or "<" in path:
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return f"{module}:{path}" if found is value else None


def describe_value(value: Any, what: str) -> Any:
    """Returns a value as JSON types: functions and classes by name, and dataclasses by their fields.

    Tuples and arrays become lists, and the fields' types say what they were. Arguments of a `functools.partial`, fields
    of a callable object and values of a mapping have no such types, so their description also says what they are.

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
            "partial": describe_value(value.func, what),
            "arguments": [_argument(each, what) for each in value.args],
            "keywords": {name: _argument(each, what) for name, each in value.keywords.items()},
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if callable(value):
            return _argument(value, what)
        fields = dataclasses.fields(value)
        return {field.name: describe_value(getattr(value, field.name), f"{what}.{field.name}") for field in fields}
    if isinstance(value, Mapping):
        return _argument(value, what)
    if isinstance(value, list | tuple):
        return [describe_value(each, what) for each in value]
    if tolist := getattr(value, "tolist", None):  # NumPy's, which is not imported here
        return tolist()
    if (name := importable_name(value)) is not None:
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


def _argument(value: Any, what: str) -> Any:
    """Returns a value without a declared type as JSON types, from which `restore_value` makes an equal one."""
    if isinstance(value, Named | functools.partial):
        return describe_value(value, what)
    if isinstance(value, str) and ":" in value:  # not the name of a function
        return {"text": value}
    if isinstance(value, list):
        return [_argument(each, what) for each in value]
    if isinstance(value, tuple) and (fields := getattr(value, "_fields", None)):
        return _object(value, dict(zip(fields, value, strict=True)), what)
    if isinstance(value, tuple):
        return {"tuple": [_argument(each, what) for each in value]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return _object(value, {name: getattr(value, name) for name in fields}, what)
    if isinstance(value, Mapping):
        if all(isinstance(name, str) for name in value) and not value.keys() & _KINDS:
            return {name: _argument(each, what) for name, each in value.items()}
        return {"items": [[_argument(name, what), _argument(each, what)] for name, each in value.items()]}
    if getattr(value, "shape", ()) and (tolist := getattr(value, "tolist", None)):
        return {"array": tolist(), "dtype": str(getattr(value, "dtype", ""))}
    return describe_value(value, what)


def _object(value: Any, fields: Mapping[str, Any], what: str) -> Any:
    keywords = {name: _argument(each, what) for name, each in fields.items()}
    return {"object": describe_value(type(value), what), "keywords": keywords}


_KINDS = {"named", "partial", "object", "text", "tuple", "items", "array"}
"""The keys by which `restore_value` knows what a mapping describes."""


def restore_value(described: Any) -> Any:
    """Returns the value that `describe_value` described; raises UsageError for a function that only its script has."""
    if isinstance(described, str):
        return load_object(described) if ":" in described else described
    if isinstance(described, list):
        return [restore_value(each) for each in described]
    if not isinstance(described, Mapping):
        return described
    if "named" in described:
        raise UsageError(
            f"{described['named']!r} is known only to the script or notebook that made the run: resume it from there."
        )
    if "partial" in described or "object" in described:
        arguments = [restore_value(each) for each in described.get("arguments", ())]
        keywords = {name: restore_value(each) for name, each in described["keywords"].items()}
        if "object" in described:
            return restore_value(described["object"])(**keywords)
        return functools.partial(restore_value(described["partial"]), *arguments, **keywords)
    if "text" in described:
        return described["text"]
    if "tuple" in described:
        return tuple(restore_value(described["tuple"]))
    if "items" in described:
        return {restore_value(name): restore_value(each) for name, each in described["items"]}
    if "array" in described:
        return importlib.import_module("numpy").array(described["array"], described["dtype"])
    return {name: restore_value(each) for name, each in described.items()}


def display_name(described: Any) -> str:
    """Returns a readable name for a described function or class."""
    if isinstance(described, Mapping):
        for kind in ("named", "partial", "object"):
            if kind in described:
                return display_name(described[kind]).removeprefix("__main__:")
    return str(described)


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()

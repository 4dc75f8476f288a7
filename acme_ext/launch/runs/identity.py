"""Identifies a run: its description in `config.json`, which a resumed run must match, and its directory's name."""

import dataclasses
import hashlib
import pathlib
import re
from typing import Any

from acme_ext import __version__, builders
from acme_ext.builders.base import Builder
from acme_ext.config.comparison import ABSENT, flatten
from acme_ext.config.values import describe_value, restore_value
from acme_ext.data.format import Folder
from acme_ext.errors import UsageError
from acme_ext.utils import files

# In this module `experiment` is an `Experiment`, whose module imports this one.

_LONGEST = 80  # characters of a run directory's name for the settings that are not defaults


def describe_experiment(experiment: Any) -> dict[str, Any]:
    """Returns `Experiment.describe()`."""
    builder = describe_value(experiment.builder, "the agent")
    return {
        **_describe_recorded(experiment),
        "agent": builders.name_of(type(experiment.builder)),
        "environment": _describe_environment(experiment),
        "environment_options": _describe_options(experiment),
        "seed": experiment.seed,
        "num_envs": experiment.num_envs,
        "builder": {name: value for name, value in builder.items() if name != "config"},
        "config": builder["config"],
        "run": {
            "version": __version__,
            "steps": experiment.steps,
            "evaluation": dataclasses.asdict(experiment.evaluation),
            "checkpoints": dataclasses.asdict(experiment.checkpoints),
        },
    }


def _describe_recorded(experiment: Any) -> dict[str, Any]:
    described = {}
    for name, given in (("data", experiment.data), ("demos", experiment.demos)):
        if given is not None:
            folder, best = split_data(given)
            described[name] = {"sha256": Folder(folder).digest, "best": best}
    return described


def _describe_environment(experiment: Any) -> Any:
    """Returns the environment in JSON types: its name, or `py:module:name` for a factory function."""
    if isinstance(experiment.environment, str):
        return experiment.environment
    described = describe_value(experiment.environment, "the environment")
    return f"py:{described}" if isinstance(described, str) else described


def restore_environment(described: Any) -> Any:
    """Returns the environment of a description, from a run's config or a manifest of recorded data.

    Raises:
        UsageError: only the script that made the run or the data has the function.
    """
    return described if isinstance(described, str) else restore_value(described)


def _describe_options(experiment: Any) -> dict[str, Any]:
    """Returns the environment's options; raises UsageError for one that has no JSON form."""
    for name, value in experiment.options.items():
        try:
            files.json_text(value)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the environment's option {name!r} is {value!r}: it must be a number, a text, None, or a list or "
                "mapping of these. Give any other value to a function that makes the environment, by functools.partial."
            ) from error
    return dict(experiment.options)


def about(experiment: Any, **more: Any) -> dict[str, Any]:
    """Returns the run's description for the data that it records, as plain JSON."""
    described = describe_experiment(experiment)
    names = ("environment", "environment_options", "agent", "config", "seed")
    return {**{name: described[name] for name in names}, **more}


def split_data(data: str) -> tuple[str, float]:
    """Splits `Experiment.data` into the folder and the share of its episodes to learn from."""
    folder, _, option = data.partition("?")
    name, _, value = option.partition("=")
    try:
        share = float(value) if option else 1.0
    except ValueError:
        share = 0.0
    if (option and name != "best") or not 0 < share <= 1:
        raise UsageError(f"{data!r}: the only option of data is best=SHARE, a share of its episodes in (0, 1].")
    return folder, share


def usual_directory(experiment: Any) -> pathlib.Path:
    """Returns an experiment's default run directory."""
    where = experiment.environment_name if experiment.data is None else f"data-{pathlib.Path(experiment.data).name}"
    demos = [] if experiment.demos is None else [f"demos-{pathlib.Path(experiment.demos).name}"]
    parts = [experiment.builder.name, where, *_choices(experiment), *demos, f"s{experiment.seed}"]
    return pathlib.Path("runs") / re.sub(r"[^\w.=+-]+", "-", "-".join(parts))


def _choices(experiment: Any) -> list[str]:
    """Returns `name=value` for each field of the agent that differs from its default for the environment, and for each
    environment option that the user has set. A long list is cut, and a digest of the whole list is added.
    """
    chosen = flatten(dict(experiment.environment_options))
    try:
        make: Any = type(experiment.builder)
        usual = _describe_builder(make().for_environment(experiment.environment))
    except TypeError:  # a custom builder whose fields have no defaults
        pass
    else:
        fields = _describe_builder(experiment.builder)
        chosen |= {name: value for name, value in fields.items() if usual.get(name, ABSENT) != value}
    texts = [f"{name.removeprefix('config.')}={_short(value)}" for name, value in chosen.items()]
    if len("-".join(texts)) <= _LONGEST:
        return texts
    digest = hashlib.sha256("-".join(texts).encode()).hexdigest()[:8]
    shown = [text for i, text in enumerate(texts) if len("-".join(texts[: i + 1])) <= _LONGEST // 2]
    return [*shown, f"{len(texts) - len(shown)}more", digest]


def _describe_builder(builder: Builder) -> dict[str, Any]:
    """Returns the fields of a builder and of its config as one flat dictionary with dotted names."""
    described = describe_value(builder, "the agent")
    return flatten({**described.pop("config"), **described})


def _short(value: Any) -> str:
    """Returns a value as text for a file name: 64x64, true, 0.0003."""
    if isinstance(value, list):
        return "x".join(map(_short, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)

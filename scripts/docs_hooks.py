"""What `make docs` adds to the pages of docs/: the files outside of it that they link to, the command line, the fields
of all configs, and what a run's directory holds.
"""

import argparse
import dataclasses
import inspect
import os
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from config_tables import documented  # noqa: E402  (beside this file, which mkdocs loads by its path)

_LINK = re.compile(r'(\]\(|src=")([^)"#\s]+)')
_COMMANDS = "reference/command-line.md"
_FIELDS = "reference/fields.md"
_RUN_DIRECTORY = "reference/run-directory.md"


def on_files(files: Files, config: Any) -> Files:
    """Adds what pages of docs/ link to outside of it, under its path in the repository, and the commands' page."""
    generated = {_COMMANDS: _command_line, _FIELDS: _fields, _RUN_DIRECTORY: _run_directory}
    for page in [page for page in files.documentation_pages() if page.src_uri not in generated]:
        _add_linked(page.content_string, (ROOT / "docs" / page.src_uri).parent, files, config)
    for uri, content in generated.items():
        files.append(File.generated(config, uri, content=content()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lets links that lead out of docs/ lead to the same files in the site."""
    uri = page.file.src_uri
    there = ROOT / "docs" / uri
    folder = (there if there.is_file() else ROOT / uri).parent

    def moved(match: re.Match[str]) -> str:
        path = _target(match[2], folder)
        if path is None or (there.is_file() and path.is_relative_to(ROOT / "docs")):
            return match[0]
        inside = path.relative_to(ROOT / "docs" if path.is_relative_to(ROOT / "docs") else ROOT)
        return match[1] + os.path.relpath(inside, pathlib.PurePosixPath(uri).parent)

    return _LINK.sub(moved, markdown)


def _add_linked(text: str, folder: pathlib.Path, files: Files, config: Any) -> None:
    for _, target in _LINK.findall(text):
        path = _target(target, folder)
        if path is None or path.is_relative_to(ROOT / "docs") or not path.is_file():
            continue
        if files.get_file_from_path(str(path.relative_to(ROOT))):
            continue
        uri = str(path.relative_to(ROOT))
        files.append(File.generated(config, uri, abs_src_path=str(path)))
        if path.suffix == ".md":
            _add_linked(path.read_text(encoding="utf-8"), path.parent, files, config)


def _target(link: str, folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the file of the repository that a link means, or None for one to elsewhere."""
    if re.match(r"[a-z]+:", link):
        return None
    path = pathlib.Path(os.path.normpath(folder / link))
    return path if path.is_relative_to(ROOT) else None


def _command_line() -> str:
    from acme_ext.commands import cli

    lines = ["# Commands and their options", "", "As `--help` prints them."]
    for name, parser in _parsers(cli._parser()):
        lines += ["", f"## {name}", "", "```text", parser.format_help().rstrip(), "```"]
    _, exit_codes = inspect.cleandoc(cli.main.__doc__ or "").split("\n\n", 1)
    lines += ["", "## Exit codes", "", *(f"- {code}" for code in exit_codes.split("; "))]
    return "\n".join(lines) + "\n"


def _run_directory() -> str:
    from acme_ext.utils.rundir import CONTENTS

    lines = ["# The directory of a run", "", "What [a run leaves](../runs.md), in one process and as a program.", ""]
    rows = [f"| `{name}` | {text} |" for name, text in CONTENTS.items()]
    return "\n".join([*lines, "| file or folder | what it is |", "|---|---|", *rows]) + "\n"


def _parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _parsers(child)


def _fields() -> str:
    """Returns the page of what can be set: the fields of experiments and of every agent's config."""
    from acme_ext import builders, launch, replay

    lines = ["# Fields", "", "What can be set, with the default, the unit and the source, as the code has it."]
    lines += ["", "On the command line, `--set NAME=VALUE` sets a field of the agent's config; those of `replay` are"]
    lines += ["`replay.NAME`. Each agent's page has the values of its presets beside its defaults."]
    shared = [launch.Experiment, launch.Evaluation, launch.Checkpoints, launch.Processes, launch.Compiled]
    shared += [replay.TransitionConfig, replay.SequenceConfig, replay.UnrollConfig]
    for cls in shared:
        lines += ["", f"## {cls.__name__}", "", *_table(cls)]
    for name in builders.AGENTS:
        config = builders.load(name).__dataclass_fields__["config"].default
        lines += ["", f"## {name}", "", f"`{type(config).__name__}`", "", *_table(type(config), config)]
    return "\n".join(lines) + "\n"


def _table(cls: type, example: Any = None) -> Iterator[str]:
    said = documented(cls)
    yield "| field | default | what it is |"
    yield "|---|---|---|"
    for field in dataclasses.fields(cls):
        default = field.default if example is None else getattr(example, field.name)
        shown = "" if default is dataclasses.MISSING else f"`{_shown(default)}`"
        text = said.get(field.name, "").replace("|", "\\|")
        yield f"| `{field.name}` | {shown} | {text} |"


def _shown(value: Any) -> str:
    """Returns a default as code: of a nested config the fields that are not its class's own defaults."""
    if not dataclasses.is_dataclass(value):
        return repr(value)
    usual, names = type(value)(), [field.name for field in dataclasses.fields(value)]
    changed = [name for name in names if getattr(value, name) != getattr(usual, name)]
    return f"{type(value).__name__}({', '.join(f'{name}={getattr(value, name)!r}' for name in changed)})"

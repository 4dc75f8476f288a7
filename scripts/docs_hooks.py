"""What `make docs` adds to the pages of docs/: the files outside of it that they link to, and the command line."""

import argparse
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[1]
_LINK = re.compile(r'(\]\(|src=")([^)"#\s]+)')
_COMMANDS = "reference/command-line.md"


def on_files(files: Files, config: Any) -> Files:
    """Adds what pages of docs/ link to outside of it, under its path in the repository, and the commands' page."""
    for page in [page for page in files.documentation_pages() if page.src_uri != _COMMANDS]:
        _add_linked(page.content_string, (ROOT / "docs" / page.src_uri).parent, files, config)
    files.append(File.generated(config, _COMMANDS, content=_command_line()))
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
    return "\n".join(lines) + "\n"


def _parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _parsers(child)

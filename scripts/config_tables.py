"""Writes the tables of fields in docs/agents from the agents' configs: `python scripts/config_tables.py`.

A row is a field: its default, the value of each preset, and what the config's source says of it. The page says under
which heading a field stands; a field that no table has is added to the last one.
"""

import dataclasses
import inspect
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from acme_ext.config.agent import AgentConfig

PAGES = pathlib.Path(__file__).resolve().parents[1] / "docs/agents"
_FIELD = re.compile(r"    (\w+): ([^#]*?)(?:  # (.*))?")
_COMMENT = re.compile(r"    # (.*)")
_HEADING = re.compile(r"[A-Z][\w -]{,30}")  # of a group of fields
_SETTING = re.compile(r"( +)(\w+)=(.*?)(?:  # (.*))?")
_START = "## The config\n"
_LINKS = {
    "random_shift": "../own-network.md#random-shifts-of-images",
    "replay.rows_per_item": "../design-notes.md#blocks-of-rows",
}
"""Where the documentation says more of a field."""


def documented(cls: type) -> dict[str, str]:
    """Returns what the source says of each field of a dataclass: the comment behind it or above it, or what the
    docstring says. What a subclass says follows the meaning that a base class gives, up to the first semicolon.
    """
    found: dict[str, str] = {}
    shared: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        if not base.__module__.startswith("acme_ext.") or "__annotations__" not in vars(base):
            continue
        own = dict(re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", inspect.getdoc(base) or "", re.MULTILINE))
        above: list[str] = []
        before = ""
        for line in inspect.getsource(base).splitlines():
            if comment := _COMMENT.fullmatch(line):
                above += [] if not before and _HEADING.fullmatch(comment[1]) else [comment[1]]
                before = line
                continue
            if (field := _FIELD.fullmatch(line)) and (field[3] or above):
                own[field[1]] = field[3] or " ".join(above)
            above, before = [], line.strip()
        for name, text in own.items():
            meaning, text = shared.get(name, "").partition(";")[0], " ".join(text.split())
            first, usual = (each.partition(" ")[0].lower() for each in (text, meaning))
            is_new = not meaning or name == "replay" or first == usual
            found[name] = text if is_new else f"{meaning}; {text}"
        if dataclasses.is_dataclass(base):  # what `AgentConfig` says is only for those that say nothing
            shared |= {name: found[name] for name in own}
    return found


def page_of(name: str, page: str) -> str:
    """Returns an agent's page with its tables of fields written anew."""
    from acme_ext import builders

    builder = builders.load(name)()
    presets = [dataclasses.replace(builder, **preset.fields).config for preset in builder.presets.values()]
    before, start, after = page.partition(_START)
    header = re.search(r"^\| field \| default \|(.*)\|[^|]*\|$", after, re.MULTILINE)
    names = [cell.strip() for cell in header[1].split("|") if cell.strip()] if header else []
    sources = {name: _sources(preset) for name, preset in zip(names, presets, strict=True)}
    rows = dict(_rows(builder.config, presets, sources))
    known = set(rows)
    lines, table, last = [], False, 0
    for line in after.splitlines():
        table = line.startswith("| field |") or (table and line.startswith("|"))
        field = re.match(r"\| `([\w.]+)` \|", line)
        if table and field and field[1] in known:
            group = field[1].partition(".")[0]
            lines += [rows.pop(name) for name in dict.fromkeys((group, field[1])) if name in rows]
            last = len(lines)
        else:
            lines.append(line)
    lines[last:last] = rows.values()
    return before + start + "\n".join(lines) + "\n"


def _rows(config: Any, presets: list[Any], sources: Mapping[str, Mapping[str, str]], prefix: str = "") -> Iterator[Any]:
    """Yields the rows of a config's fields by dotted name; those of a nested config follow what is said of it."""
    words = documented(type(config))
    for field in dataclasses.fields(config):
        name, value = prefix + field.name, getattr(config, field.name)
        own, text = [getattr(preset, field.name) for preset in presets], words.get(field.name, "").rstrip(".")
        if dataclasses.is_dataclass(value):
            if text and text != documented(AgentConfig).get(name):
                yield name, _row(name, type(value).__name__, [""] * len(own), text)
            yield from _rows(value, own, sources, f"{name}.")
            continue
        cells = ["" if each == value else f"`{_shown(each)}`" for each in own]
        of_presets = [f"{preset}: {said[name]}" for preset, said in sources.items() if said.get(name, text) not in text]
        more = [f"[more]({_LINKS[name]})"] if name in _LINKS else []
        yield name, _row(name, _shown(value), cells, "; ".join(filter(None, (text, *of_presets, *more))))


def _row(name: str, value: str, cells: list[str], text: str) -> str:
    row = " | ".join([f"| `{name}`", f"`{value}`", *cells, text.replace("|", "\\|"), ""])
    return re.sub(r"\| +(?=\|)", "| ", row).rstrip()


def _shown(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and 1_000 <= abs(value) < 1e8:
        return f"{value:_}"
    return re.sub(r"e([-+])0", r"e\1", repr(value))


def _sources(preset: Any) -> dict[str, str]:
    """Returns the comments behind the values of a preset, by dotted name, where its config's module writes it down."""
    module = sys.modules[type(preset).__module__]
    names = [name for name, value in vars(module).items() if value is preset]
    found, path = {}, []
    written = re.search(rf"^{names[0]} = .*\n((?: .*\n)*)", inspect.getsource(module), re.MULTILINE) if names else None
    for line in written[1].splitlines() if written else ():
        if setting := _SETTING.fullmatch(line):
            path = [*path[: len(setting[1]) // 4 - 1], setting[2]]
            if setting[4]:
                found[".".join(path)] = setting[4]
    return found


def main() -> None:
    from acme_ext import builders

    for name in builders.AGENTS:
        path = PAGES / f"{name}.md"
        path.write_text(page_of(name, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

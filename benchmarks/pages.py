"""`python -m benchmarks.pages` puts the results of learning into the README and the agents' pages, at their marks."""

import dataclasses
import pathlib
import re
from collections.abc import Sequence

from benchmarks.settings import SETTINGS, Setting

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- learning: begin -->", "<!-- learning: end -->"


@dataclasses.dataclass(frozen=True)
class Result:
    """What a setting's page says."""

    name: str
    setting: Setting
    scores: dict[str, str]  # `median`, `mean`, `least`, `greatest` over the seeds
    seeds: int
    seconds: int  # median wall time of a seed

    @property
    def world(self) -> str:
        if not self.setting.actors:
            return "one process"
        return f"{self.setting.actors} actor processes{self.setting.arrangement}"

    @property
    def bar(self) -> str:
        if self.setting.bar is None:
            return ""
        reached = float(self.scores[self.setting.statistic].replace(",", "")) >= self.setting.bar
        return f"{self.setting.statistic} {self.setting.bar:g}: {'reached' if reached else 'MISSED'}"


def read(results: pathlib.Path = RESULTS) -> list[Result]:
    """Returns what has been measured, in the order of the settings."""
    found = []
    for name, setting in SETTINGS.items():
        path = results / f"{name}.md"
        if not path.is_file():
            continue
        rows = [line.strip("| ").split("|") for line in path.read_text().splitlines() if line.startswith("| ")]
        cells = [[cell.strip() for cell in row] for row in rows]
        seeds = [row for row in cells if row[0].isdecimal()]
        scores = {row[0]: row[1] for row in cells if row[0] in ("median", "mean", "least", "greatest")}
        times = sorted(int(row[-1].replace(",", "")) for row in seeds)
        found.append(Result(name, setting, scores, len(seeds), times[len(times) // 2]))
    return found


def agent_table(agent: str, found: Sequence[Result]) -> list[str]:
    """Returns the lines of an agent's page."""
    mine = [result for result in found if result.setting.agent == agent]
    if not mine:
        return ["Nothing has been measured yet."]
    lines = [
        "| environment | budget | seeds | final greedy return: median | mean | least | bar | command, and its page |",
        "|---|--:|--:|--:|--:|--:|---|---|",
    ]
    for r in mine:
        world = f" ({r.world})" if r.setting.actors else ""
        lines.append(
            f"| `{r.setting.environment}`{world} | {r.setting.steps:,} | {r.seeds} | {r.scores['median']} | "
            f"{r.scores['mean']} | {r.scores['least']} | {r.bar} | "
            f"[`python -m benchmarks.learning {r.name}`](../../benchmarks/results/{r.name}.md) |"
        )
    shown = max(mine, key=lambda r: (r.setting.bar is not None, r.seeds))
    picture = f'<img src="../../benchmarks/results/{shown.name}.png" width="600" alt="Learning curves of {shown.name}">'
    return [*lines, "", picture]


def readme_table(found: Sequence[Result]) -> list[str]:
    """Returns the lines of the README."""
    lines = [
        "| agent | environment | budget | seeds | median | mean | least | bar | page |",
        "|---|---|--:|--:|--:|--:|--:|---|---|",
    ]
    for r in found:
        world = f", {r.world}" if r.setting.actors else ""
        lines.append(
            f"| `{r.setting.agent}` | `{r.setting.environment}`{world} | {r.setting.steps:,} | {r.seeds} | "
            f"{r.scores['median']} | {r.scores['mean']} | {r.scores['least']} | {r.bar} | "
            f"[{r.name}](benchmarks/results/{r.name}.md) |"
        )
    return lines


def between_marks(text: str, lines: Sequence[str]) -> str:
    """Returns a page with the lines between its marks."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"a page needs {BEGIN} and {END}, once")
    return pattern.sub(lambda _: "\n".join([BEGIN, *lines, END]), text)


def pages(found: Sequence[Result]) -> dict[pathlib.Path, str]:
    """Returns every page as it should be."""
    wanted = {ROOT / "README.md": readme_table(found)}
    for path in sorted((ROOT / "docs" / "agents").glob("*.md")):
        wanted[path] = agent_table(path.stem, found)
    return {path: between_marks(path.read_text(), lines) for path, lines in wanted.items()}


def main() -> None:
    """Writes the pages."""
    for path, text in pages(read()).items():
        if path.read_text() != text:
            path.write_text(text)
            print("written:", path.relative_to(ROOT))


if __name__ == "__main__":
    main()

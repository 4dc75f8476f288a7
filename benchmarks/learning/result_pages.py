"""`python -m benchmarks.learning.result_pages`: writes the tables and figures of the results to their pages."""

import dataclasses
import pathlib
import re
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from acme_ext.utils import plots
from benchmarks.learning import compiled_seeds, offline, outcomes, validation
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome
from benchmarks.learning.settings import RECORDED, SETTINGS, Setting

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = learning.RESULTS
BEGIN, END = "<!-- learning: begin -->", "<!-- learning: end -->"
FIGURES = {
    "gym:CartPole-v1": "cartpole",
    "bsuite:catch/0": "catch",
    "bsuite:memory_len/10": "memory",
    "minatar:breakout": "breakout",
    "gym:Pendulum-v1": "pendulum",
    "dmc:cartpole/swingup": "swingup",
    "envpool:Pong-v5": "pong",
    "explore:chain": "chain",
    "explore:key_door": "key_door",
    "jax:minatar-breakout": "minatar",
    "jax:navix/DoorKey-8x8": "doorkey",
}
"""The environments with a figure, and the figure's name."""
SWEPT = "key_door"
"""The name in `RECORDED` of the demonstrations whose share differs between settings."""


@dataclasses.dataclass(frozen=True)
class Result:
    """The results of a setting."""

    name: str
    setting: Setting
    machine: dict[str, Any]
    seeds: list[Outcome]

    @property
    def world(self) -> str:
        """A description of the arrangement, if it is not one process with several environments."""
        if self.setting.actors:
            return f"{self.setting.actors} actor processes{self.setting.arrangement}"
        if self.setting.compiled:
            device = self.machine.get("device")
            return f"compiled, on one {device}" if device else "compiled"
        return "one environment" if self.setting.num_envs == 1 else ""

    @property
    def changed(self) -> str:
        """The settings of fields that aren't the agent's defaults."""
        fields = {**self.setting.config, **self.setting.environment_options}
        return "".join(f", `{name}={value}`" for name, value in fields.items())

    @property
    def which(self) -> str:
        """The first and the last seed in words, unless the first is 0."""
        numbers = [o.seed for o in self.seeds]
        return f" ({min(numbers)} to {max(numbers)})" if min(numbers) else ""

    @property
    def bar(self) -> str:
        return outcomes.bar(self.setting, self.seeds)

    @property
    def cells(self) -> list[str]:
        """The cells of a row, from the budget to the version."""
        found = outcomes.summarise(self.setting, self.seeds)
        interval = f" ({found.interval[0]:.4g} to {found.interval[1]:.4g})"
        # Of fewer seeds, a bootstrap gives the range, which is far from an interval of 95%.
        interval = interval if len(self.seeds) >= plots.BOOTSTRAP_SEEDS else ""
        seconds = statistics.median(o.wall_time_s for o in self.seeds)
        return [
            f"{self.setting.steps:,}",
            f"{len(self.seeds)}{self.which}",
            f"{found.mean:.4g}",
            f"{found.iqm:.4g}{interval}",
            f"{found.least:.4g}",
            "" if found.steady is None else f"{found.steady:.0%}",
            self.bar,
            f"{seconds:,.0f}",
            self.machine["acme-ext"],
        ]


NOTHING = ["Nothing has been measured yet."]
_COLUMNS = ("budget", "seeds", "mean", "IQM (95%)", "least", "at the bar", "bar", "seconds a seed", "version")
_RULES = "--:|--:|--:|--:|--:|--:|---|--:|---|"


def read(results: pathlib.Path = RESULTS) -> list[Result]:
    """Returns all results, in the order of the settings."""
    written = outcomes.load(results / learning.FILE)
    return [
        Result(name, setting, written[name].machine, written[name].seeds)
        for name, setting in SETTINGS.items()
        if name in written
    ]


def agent_table(agent: str, found: Sequence[Result]) -> list[str]:
    """Returns the lines of an agent's page."""
    mine = [result for result in found if result.setting.agent == agent]
    if not mine:
        return NOTHING
    lines = [f"| environment | {' | '.join(_COLUMNS)} | setting |", f"|---|{_RULES}---|"]
    for r in mine:
        world = f" ({r.world})" if r.world else ""
        lines.append(f"| `{r.setting.environment}`{r.changed}{world} | {' | '.join(r.cells)} | `{r.name}` |")
    lines += [
        "",
        "Final returns, made by `python -m benchmarks.learning` with the name in the last column; "
        "[the table of all agents](../../benchmarks/results/learning.md) explains the columns, and "
        "[learning.json](../../benchmarks/results/learning.json) has every seed.",
    ]
    for environment in dict.fromkeys(r.setting.environment for r in mine):
        if name := FIGURES.get(environment):
            figure = (
                f'<img src="../../benchmarks/results/{name}.png" width="600" alt="Learning curves on {environment}">'
            )
            return [*lines, "", figure]
    return lines


def demo_ratios(found: Sequence[Result]) -> dict[str, dict[float, list[float]]]:
    """Returns the seeds' final returns by the share of demonstrations, for each agent that learned from `SWEPT`."""
    returns: dict[str, dict[float, list[float]]] = {}
    for r in found:
        if r.setting.demos == SWEPT:
            replay: Any = r.setting.experiment(0, 1, ROOT).builder.config.replay
            returns.setdefault(r.setting.agent, {})[replay.demo_ratio] = [o.score for o in r.seeds]
    return returns


def demo_table(found: Sequence[Result]) -> list[str]:
    """Returns the lines of the table on the share of demonstrations."""
    lines = ["| agent | `replay.demo_ratio` | seeds | mean | least |", "|---|--:|--:|--:|--:|"]
    for agent, of_ratio in demo_ratios(found).items():
        for ratio, scores in of_ratio.items():
            lines.append(f"| `{agent}` | {ratio:g} | {len(scores)} | {np.mean(scores):.4g} | {min(scores):.4g} |")
    alt = f"Final return on {RECORDED[SWEPT].environment} by the share of demonstrations"
    return [*lines, "", f'<img src="../benchmarks/results/demonstrations.png" width="500" alt="{alt}">']


def draw_demo_ratios(found: Sequence[Result], out: pathlib.Path) -> None:
    """Plots the final returns by the share of demonstrations: the mean and the range over seeds."""
    figure = plots.new_figure(5, 3)
    axes = figure.subplots()
    for agent, of_ratio in demo_ratios(found).items():
        ratios, scores = list(of_ratio), of_ratio.values()  # numbers of seeds may differ
        axes.fill_between(ratios, [min(s) for s in scores], [max(s) for s in scores], alpha=0.2, linewidth=0)
        axes.plot(ratios, [np.mean(s) for s in scores], marker="o", label=agent)
    axes.set(xlabel="replay.demo_ratio", ylabel=f"final return on {RECORDED[SWEPT].environment}")
    axes.grid(alpha=0.3)
    axes.legend()
    plots.save(figure, out)


def whole_table(found: Sequence[Result]) -> list[str]:
    """Returns the lines of the page with all agents."""
    lines = [f"| agent | environment | {' | '.join(_COLUMNS)} | setting |", f"|---|---|{_RULES}---|"]
    for r in found:
        world = f"`{r.setting.environment}`{r.changed}" + (f", {r.world}" if r.world else "")
        lines.append(f"| `{r.setting.agent}` | {world} | {' | '.join(r.cells)} | `{r.name}` |")
    names = {r.name for r in found}
    if lacking := [f"`{name}`" for name in SETTINGS if name not in names]:
        lines += ["", f"Not measured: {', '.join(lacking)}."]
    return lines


def between_marks(text: str, lines: Sequence[str]) -> str:
    """Returns a page's text with `lines` between its marks."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"a page must contain {BEGIN} and {END} exactly once")
    return pattern.sub(lambda _: "\n".join([BEGIN, *lines, END]), text)


def pages(found: Sequence[Result]) -> dict[pathlib.Path, str]:
    """Returns the up-to-date text of every page."""
    wanted = {RESULTS / "learning.md": whole_table(found)}
    for path in sorted(RESULTS.glob("validation-*.json")):
        wanted[path.with_suffix(".md")] = validation.table(path)
    wanted[ROOT / "docs" / "fixed-data.md"] = demo_table(found)
    if (found_there := RESULTS / "compiled-seeds.json").is_file():
        wanted[ROOT / "docs" / "compiled.md"] = compiled_seeds.table(found_there, RESULTS / learning.FILE)
    if offline.RESULTS.is_file():
        wanted[offline.RESULTS.with_suffix(".md")] = offline.table(offline.RESULTS)
    for path in sorted((ROOT / "docs" / "agents").glob("*.md")):
        of_data = offline.agent_table(path.stem, offline.RESULTS)
        online = agent_table(path.stem, found)
        both = [*online, "", *of_data] if of_data and online != NOTHING else of_data or online
        wanted[path] = both
    return {path: between_marks(path.read_text(), lines) for path, lines in wanted.items()}


def draw(environment: str, found: Sequence[Result], out: pathlib.Path) -> None:
    """Plots the learning curves on an environment, from evaluations during training: the mean and the range over seeds,
    against environment steps.
    """
    mine = [r for r in found if r.setting.environment == environment and r.setting.eval_every]
    columns = min(4, len(mine))
    rows = -(-len(mine) // columns)
    figure = plots.new_figure(max(2.6 * columns, 4.5), 2.1 * rows + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes in grid.ravel()[len(mine) :]:
        axes.set_visible(False)
    for axes, r in zip(grid.ravel(), mine, strict=False):
        curves = [(o.evaluations["environment_steps"], o.evaluations["episode_return_mean"]) for o in r.seeds]
        x = np.linspace(max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves), 100)
        lines = np.array([np.interp(x, steps, values) for steps, values in curves])
        axes.fill_between(x / 1_000, lines.min(0), lines.max(0), alpha=0.2, linewidth=0)
        axes.plot(x / 1_000, lines.mean(0))
        axes.set_title(f"{r.name}, {len(r.seeds)} seed{'s' * (len(r.seeds) > 1)}", fontsize=7)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    figure.suptitle(f"Evaluation return on {environment}: mean, least and greatest seed", fontsize=9)
    figure.supxlabel("thousands of environment steps", fontsize=8)
    plots.save(figure, out)


def main() -> None:
    """Writes the pages and draws the figures."""
    found = read()
    for path, text in pages(found).items():
        if path.read_text() != text:
            path.write_text(text)
            print("written:", path.relative_to(ROOT))
    for environment, name in FIGURES.items():
        draw(environment, found, RESULTS / f"{name}.png")
    draw_demo_ratios(found, RESULTS / "demonstrations.png")


if __name__ == "__main__":
    main()

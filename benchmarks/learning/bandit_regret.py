"""Compares the regret of `acme_ext.ops.bandits` with known bounds: `python -m benchmarks.learning.bandit_regret`."""

import argparse
import math
import pathlib
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.ops import bandits
from acme_ext.ops.bandits import Bandit
from acme_ext.utils import files, plots
from benchmarks.learning.result_pages import RESULTS
from benchmarks.shared import command

MEANS = (0.9, 0.8, 0.7, 0.5, 0.5)
"""Means of the Bernoulli arms."""


def drifting(steps: int) -> np.ndarray:
    """Returns means of arms `[steps, K]`, with a different best arm in each quarter of the steps."""
    means = np.full((steps, len(MEANS)), 0.5)
    for quarter, rows in enumerate(np.array_split(np.arange(steps), 4)):
        means[rows, quarter] = 0.9
    return means


def regret(bandit: Bandit, means: np.ndarray, seeds: int) -> np.ndarray:
    """Returns the cumulative regret `[steps, seeds]`, computed from the arms' means.

    Args:
        bandit: the bandit algorithm.
        means: `[steps, K]` means of the arms at each step.
        seeds: number of independent bandits, each with its own random keys.
    """
    keys = jax.random.split(jax.random.key(0), seeds)

    def step(state, now):
        time, mean = now
        choice, luck = jnp.unstack(jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time)))(keys), axis=1)
        arm = bandit.select(choice, state)
        reward = (jax.vmap(jax.random.uniform)(luck) < mean[arm]).astype(jnp.float32)
        return bandit.update(state, arm, reward), jnp.max(mean) - mean[arm]

    inputs = jnp.arange(len(means)), jnp.asarray(means, jnp.float32)
    _, missed = jax.lax.scan(step, jax.tree.map(jnp.asarray, bandit.init(seeds)), inputs)
    return np.cumsum(np.asarray(missed, np.float64), axis=0)


def contestants(steps: int) -> dict[str, Bandit]:
    """Returns the bandits by name, with the parameters that their regret bounds assume."""
    arms = len(MEANS)
    return {
        "epsilon-greedy, 0.1": bandits.epsilon_greedy(arms, 0.1),
        "UCB1": bandits.ucb1(arms),
        "sliding-window UCB, 200": bandits.sliding_window_ucb(arms, 200),
        "EXP3": bandits.exp3(arms, min(1.0, math.sqrt(arms * math.log(arms) / ((math.e - 1) * steps)))),
        "Thompson": bandits.thompson(arms),
    }


def bounds(steps: int) -> dict[str, float]:
    """Returns the bounds on the expected regret after `steps` plays, for arms with constant means."""
    gaps = np.array([max(MEANS) - mean for mean in MEANS if mean < max(MEANS)])
    return {
        "UCB1": float(8 * np.sum(np.log(steps) / gaps) + (1 + np.pi**2 / 3) * gaps.sum()),
        "EXP3": 2.63 * math.sqrt(steps * len(MEANS) * math.log(len(MEANS))),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.bandit_regret", description=__doc__)
    parser.add_argument("--steps", type=int, default=5_000, help="number of plays (%(default)s)")
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds (%(default)s)")
    command.add(parser, out=RESULTS)
    options = parser.parse_args(arguments)
    return command.run("benchmarks.learning.bandit_regret", lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    command.check_least(options, "steps", "seeds")
    files.make_writable_folder(options.out)  # fail early; the rest takes minutes
    steps, seeds = options.steps, options.seeds
    problems = {"fixed": np.tile(MEANS, (steps, 1)), "drifting": drifting(steps)}
    found = {
        problem: {name: regret(bandit, means, seeds) for name, bandit in contestants(steps).items()}
        for problem, means in problems.items()
    }
    _draw(found, bounds(steps), options.out / "bandit-regret.png")
    text = page(found, steps, seeds)
    files.write_text(options.out / "bandit-regret.md", text)
    print(text)
    return 0


def page(found: Mapping[str, Mapping[str, np.ndarray]], steps: int, seeds: int) -> str:
    """Returns the page as Markdown."""
    lines = [
        "# Regret of bandits",
        "",
        f"`python -m benchmarks.learning.bandit_regret --steps {steps} --seeds {seeds}`: what is missed in {steps:,} "
        f"plays of {len(MEANS)} Bernoulli arms, by their means; the mean over {seeds} seeds, and the greatest of "
        f"them. The arms of `fixed` have the means {', '.join(f'{mean:g}' for mean in MEANS)}; of `drifting` another "
        "has 0.9 in each quarter, and all others 0.5. The bounds are on the expected regret with fixed arms (Auer et "
        "al. 2002a, theorem 1; Auer et al. 2002b, corollary 3.2).",
        "",
        "| bandit | fixed: mean | greatest | bound on the mean | drifting: mean | greatest |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    limit = bounds(steps)
    for name in found["fixed"]:
        cells = [f"{found[problem][name][-1].mean():.1f} | {found[problem][name][-1].max():.1f}" for problem in found]
        bound = f"{limit[name]:.1f}" if name in limit else ""
        lines.append(f"| {name} | {cells[0]} | {bound} | {cells[1]} |")
    return "\n".join([*lines, "", "![Regret by plays](bandit-regret.png)", ""])


def _draw(found: Mapping[str, Mapping[str, np.ndarray]], limits: Mapping[str, float], path: pathlib.Path) -> None:
    figure = plots.new_figure(10, 4, dpi=100)
    both = figure.subplots(1, 2)
    for axes, (problem, curves) in zip(both, found.items(), strict=True):
        for name, regrets in curves.items():
            (line,) = axes.plot(regrets.mean(axis=1), label=name)
            low, high = np.quantile(regrets, [0.1, 0.9], axis=1)
            axes.fill_between(np.arange(len(low)), low, high, color=line.get_color(), alpha=0.2, linewidth=0)
            if problem == "fixed" and name in limits:
                axes.axhline(limits[name], color=line.get_color(), linestyle=":", label=f"bound of {name}")
        axes.set(title=problem, xlabel="plays", ylabel="regret")
        axes.legend(fontsize="small")
    plots.save(figure, path)


if __name__ == "__main__":
    raise SystemExit(main())

"""How the policy without a bonus fares as the bonus of the other one grows, where one network learns the values of
reward and bonus together (NGU) and where two learn them apart (Agent57), after Badia et al. 2020b, section 3.1:
`python -m benchmarks.random_coin`.
"""

import argparse
import dataclasses
import functools
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from acme_ext.acting.policy import Policy
from acme_ext.agents.agent57.acting import combined_values
from acme_ext.agents.agent57.config import Agent57Config
from acme_ext.agents.ngu import acting
from acme_ext.agents.ngu.networks import NGUNetworks
from acme_ext.builders.agent57 import Agent57
from acme_ext.utils import files
from benchmarks import command, learning, outcomes, report
from benchmarks.outcomes import Outcome
from benchmarks.settings import Setting

BETAS = (0.1, 1.0, 10.0)
AGENTS = {"one network": "ngu", "two networks": "benchmarks.random_coin:Apart"}
"""How values are learned, and the agent that does it."""


def make_policy(networks: NGUNetworks, config: Agent57Config, *, evaluation: bool) -> Policy:
    """Returns Agent57's policy with NGU's choice of who plays: anyone, in evaluation the policy without a bonus."""
    choice = acting.exploiting() if evaluation else acting.uniform(config.num_arms)
    preferred = functools.partial(combined_values, rescaling_epsilon=config.rescaling_epsilon)
    return acting.policy_of(networks, config, choice, evaluation=evaluation, preferred=preferred)


@dataclasses.dataclass(frozen=True)
class Apart(Agent57):
    """Agent57 without its bandit: what is left of its difference from NGU is that values are learned apart."""

    name = "apart"
    policy_of = staticmethod(make_policy)


def setting(agent: str, beta: float) -> Setting:
    """Returns the setting of an agent of `AGENTS`: its defaults, but with two policies, and the same discounts."""
    config = {"num_arms": "2", "beta": f"{beta:g}", "discount": "0.99", "least_discount": "0.99"}
    options: dict[str, Any] = {"size": SIZE, "time_limit": LIMIT}
    return Setting(
        AGENTS[agent],
        "explore:random_coin",
        STEPS,
        8,
        eval_every=STEPS // 4,
        eval_episodes=100,
        config=config,
        environment_options=options,
    )


SIZE, LIMIT, STEPS = 15, 200, 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code, which is 0 or what `benchmarks.learning` would return."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.random_coin",
        description=f"{__doc__} What is finished is not run again, what was stopped goes on.",
    )
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N", help="of the environment (%(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--betas", type=float, nargs="+", default=list(BETAS), metavar="X", help="(0.1 1 10)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="seeds at a time (%(default)s)")
    parser.add_argument("--fresh", action="store_true", help="start anew: delete what earlier runs left")
    parser.add_argument(
        "--runs", type=pathlib.Path, default=learning.RUNS / "random_coin", metavar="DIR", help="(%(default)s)"
    )
    parser.add_argument("--out", type=pathlib.Path, default=learning.RESULTS, metavar="DIR", help="of the results")
    options = parser.parse_args(arguments)
    return command.run("benchmarks.random_coin", lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    command.check_seeds(options.seeds)
    files.make_writable_folder(options.out)
    runs = {}
    for agent in AGENTS:
        for beta in options.betas:
            made = setting(agent, beta)
            folder = options.runs / f"{agent.replace(' ', '_')}-{beta:g}"
            runs[agent, beta] = [made.experiment(s, options.steps, folder / f"seed-{s}") for s in options.seeds]
    named = {f"{agent}, beta {beta:g}, seed {e.seed}": e for (agent, beta), es in runs.items() for e in es}
    any_setting = setting("one network", options.betas[0])
    if code := learning.run_all(any_setting, named, options.jobs, fresh=options.fresh):
        return code
    found = {key: [outcomes.read(e, 1) for e in experiments] for key, experiments in runs.items()}
    out = options.out / "random-coin"
    draw(found, out.with_suffix(".png"))
    text = page(found, options.steps)
    with files.replacing(out.with_suffix(".md")) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(text)
    faults = [f"{key} seed {o.seed}: {o.fault}" for key, of_seeds in found.items() for o in of_seeds if o.fault]
    print("; ".join(faults))
    return 1 if faults else 0


Found = Mapping[tuple[str, float], Sequence[Outcome]]


def page(found: Found, steps: int) -> str:
    """Returns the page."""
    lines = [
        "# random-coin",
        "",
        "`python -m benchmarks.random_coin`: the return of the policy without a bonus, on `explore:random_coin` of "
        f"{SIZE} times {SIZE} cells and {LIMIT} steps, after {steps:,} steps of training with 8 environments. Of two "
        "policies the other one is given beta times the bonus, and each plays half of the episodes. One network is "
        "NGU's; two are Agent57's, without the bandit. The return is the share of 100 episodes, played greedily, in "
        "which the coin is found.",
        "",
        "| values | beta | mean of the seeds | least seed | greatest seed | each seed | wall time a seed, s |",
        "|---|--:|--:|--:|--:|---|--:|",
    ]
    for (agent, beta), of_seeds in found.items():
        scores = np.array([o.score for o in of_seeds])
        each = ", ".join(f"{o.seed}: {o.score:.2f}" for o in of_seeds)
        wall = np.mean([o.wall_time_s for o in of_seeds])
        cells = (f"{scores.mean():.3f}", f"{scores.min():.2f}", f"{scores.max():.2f}", each, f"{wall:.0f}")
        lines.append(f"| {agent} | {beta:g} | {' | '.join(cells)} |")
    lines += ["", "![Return by beta](random-coin.png)", ""]
    lines.append(", ".join(f"{name} {value}" for name, value in report.machine().items()) + ".")
    return "\n".join(lines) + "\n"


def draw(found: Found, out: pathlib.Path) -> None:
    """Draws the returns by beta: the mean of the seeds, from the least to the greatest."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), dpi=150, layout="constrained")
    axes = figure.subplots()
    for agent in AGENTS:
        betas = [beta for name, beta in found if name == agent]
        scores = np.array([[o.score for o in found[agent, beta]] for beta in betas])
        axes.fill_between(betas, scores.min(axis=1), scores.max(axis=1), alpha=0.2, linewidth=0)
        axes.plot(betas, scores.mean(axis=1), marker="o", label=agent)
    axes.set(xscale="log", xlabel="beta", ylabel="return of the policy without a bonus", ylim=(-0.03, 1.03))
    axes.grid(alpha=0.3)
    axes.legend()
    with files.replacing(out) as temporary:
        figure.savefig(temporary, format="png")


if __name__ == "__main__":
    sys.exit(main())

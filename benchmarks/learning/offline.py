"""Compares agents that learn from recorded data with the recorded policies: `python -m benchmarks.learning.offline`."""

import argparse
import dataclasses
import pathlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from acme_ext import builders, launch
from acme_ext.commands import common
from acme_ext.commands.record import Behaviour, record_run
from acme_ext.config.assignments import configure_builder, split_assignments
from acme_ext.data.format import Folder
from acme_ext.errors import RunError, UsageError, nearest
from acme_ext.utils import files
from acme_ext.utils.rundir import RunDirectory
from benchmarks.learning import run as learning
from benchmarks.learning import validation
from benchmarks.shared import command, report

RUNS = learning.RUNS / "offline"
RESULTS = learning.RESULTS / "offline.json"
EPISODES = 50
"""Number of episodes of every final evaluation."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """An agent that is trained to generate data; its seed is 100."""

    agent: str
    environment: str
    steps: int  # maximum number of environment steps
    num_envs: int
    share: float | None = None  # it ends when its score first reaches this share of the expert's; None: at `steps`
    first: int = 4_000  # environment steps until the first evaluation, with a `share`
    every: int = 250  # environment steps between evaluations; after each, all environments begin new episodes
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)  # fields that aren't the agent's defaults

    def experiment(self, run_dir: pathlib.Path, steps: int) -> launch.Experiment:
        """Returns the experiment with a budget of `steps`."""
        return launch.Experiment(
            configure_builder(builders.load(self.agent)().for_environment(self.environment), self.config),
            self.environment,
            steps=steps,
            seed=100,
            num_envs=self.num_envs,
            evaluation=launch.Evaluation(every=0, final_episodes=EPISODES),
            run_dir=str(run_dir),
        )


@dataclasses.dataclass(frozen=True)
class Part:
    """A recorded part of a data set, from one policy."""

    trained: str  # a name in `TRAINED`; for `replay`, one that no other data set uses
    policy: Behaviour | Literal["replay"]  # how it acts; `replay`: its whole training is recorded
    steps: int  # minimum number of steps, in whole episodes
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)  # fields that differ from its training


@dataclasses.dataclass(frozen=True)
class Data:
    """A data set, and the learners for it."""

    about: str
    expert: str  # a name in `TRAINED`, whose score is 100
    parts: tuple[Part, ...]
    learners: str  # a name in `LEARNERS`
    steps: int = 6_000  # learner steps of each learner
    changed: bool = False  # whether the recording or the number of steps was chosen anew after a bar had been missed


@dataclasses.dataclass(frozen=True)
class Learner:
    """An agent that learns from data."""

    agent: str
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)  # fields that aren't the agent's defaults
    best: float = 1.0  # it learns from this fraction of the episodes, those with the greatest returns


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar for the mean score over seeds, for some agents."""

    data: str
    learners: tuple[str, ...]
    than: str | None  # `behaviour` or a learner, to whose score `by` is added; None: only `by`
    by: float = 0.0
    kind: Literal["at least", "above", "below", "within"] = "at least"

    def __str__(self) -> str:
        if self.kind == "within":
            return f"within {self.by:g} of {self.than}"
        added = f"{self.by:g}" if self.than is None else f"{self.than}{f' + {self.by:g}' if self.by else ''}"
        return f"{self.kind} {added}"

    def reached(self, score: float, other: float) -> bool:
        """Whether a score reaches the bar, compared with the `other` score."""
        if self.kind == "within":
            return abs(score - other) <= self.by
        if self.kind == "below":
            return score < other + self.by
        return score > other + self.by or (self.kind == "at least" and score >= other + self.by)


PENDULUM, BALANCE = "gym:Pendulum-v1", "dmc:cartpole/balance"
CARTPOLE, BREAKOUT = "gym:CartPole-v1", "minatar:breakout"
_PUBLISHED = {"noise_stddev": "0.1", "replay.n_step": "1"}  # TD3's, as its authors have it
TRAINED: dict[str, Trained] = {
    "pendulum-expert": Trained("td3", PENDULUM, 20_000, 1, config=_PUBLISHED),
    "pendulum-medium": Trained("td3", PENDULUM, 20_000, 1, share=1 / 3, config=_PUBLISHED),
    "balance-expert": Trained("d4pg", BALANCE, 80_000, 4),
    "balance-medium": Trained("d4pg", BALANCE, 80_000, 4, share=1 / 3, first=20_000, every=4_000),
    "cartpole-expert": Trained("dqn", CARTPOLE, 50_000, 8),
    "cartpole-replay": Trained("dqn", CARTPOLE, 8_000, 8),
    "breakout-replay": Trained("dqn", BREAKOUT, 300_000, 8),
}
DATA: dict[str, Data] = {
    "pendulum-medium": Data(
        "TD3 with a noise of 0.1, once it has come a third of the way",
        "pendulum-expert",
        (Part("pendulum-medium", "training", 20_000),),
        "continuous",
        steps=15_000,
        changed=True,
    ),
    "pendulum-mixed": Data(
        "random actions and the expert, half each",
        "pendulum-expert",
        (Part("pendulum-expert", "random", 10_000), Part("pendulum-expert", "training", 10_000)),
        "continuous",
    ),
    "pendulum-expert": Data(
        "TD3 with a noise of 0.1", "pendulum-expert", (Part("pendulum-expert", "training", 20_000),), "continuous"
    ),
    "balance-medium": Data(
        "D4PG once it has come a third of the way, with noise of 0.8 in place of 0.3",
        "balance-expert",
        (Part("balance-medium", "training", 50_000, {"noise_stddev": "0.8"}),),
        "control",
        steps=15_000,
    ),
    "cartpole-replay": Data(
        "all that DQN does while it learns",
        "cartpole-expert",
        (Part("cartpole-replay", "replay", 8_000),),
        "discrete",
        steps=6_400,
        changed=True,
    ),
    "breakout-replay": Data(
        "all that DQN does while it learns",
        "breakout-replay",
        (Part("breakout-replay", "replay", 300_000),),
        "pictures",
        steps=20_000,
    ),
}
"""The data sets by name; the environment is that of the first part's agent."""

_SMALL = {"hidden_sizes": "64,64"}
_LONGER = {**_SMALL, "replay.n_step": "5"}
_QUICK = {"learning_rate": "1e-3", "sgd_steps_per_call": "1"}
LEARNERS: dict[str, dict[str, Learner]] = {
    "continuous": {
        "bc": Learner("bc", _SMALL),
        "10% bc": Learner("bc", _SMALL, best=0.1),
        "td3_bc": Learner("td3_bc", _SMALL),
        "iql": Learner("iql", {**_SMALL, "reward_scale": "0.1"}),
        "cql": Learner("cql", {**_SMALL, "penalty_samples": "4"}),
        "crr": Learner("crr", {**_SMALL, "reward_scale": "0.1"}),
        "td3": Learner("td3", {**_SMALL, "replay.n_step": "1"}),
    },
    "control": {
        "bc": Learner("bc", _SMALL),
        "10% bc": Learner("bc", _SMALL, best=0.1),
        "td3_bc": Learner("td3_bc", {**_LONGER, "learning_rate": "1e-3", "imitation_alpha": "20"}),
        "iql": Learner("iql", {**_LONGER, "inverse_temperature": "1"}),
        "cql": Learner("cql", {**_LONGER, "learning_rate": "1e-3", "penalty_coef": "0.2", "penalty_samples": "2"}),
        "td3": Learner("td3", {**_LONGER, "learning_rate": "1e-3"}),
    },
    "discrete": {
        "bc": Learner("bc", _SMALL),
        "10% bc": Learner("bc", _SMALL, best=0.1),
        "discrete_cql": Learner("discrete_cql", {"replay.n_step": "5"}),
        "bcq": Learner("bcq", {"replay.n_step": "5"}),
        "dqn": Learner("dqn", {"average_rate": "none"}),
    },
    "pictures": {
        "bc": Learner("bc", {"batch_size": "32", "sgd_steps_per_call": "1"}),
        "discrete_cql": Learner("discrete_cql", _QUICK),
        "bcq": Learner("bcq", _QUICK),
        "dqn": Learner("dqn", _QUICK),
    },
}
BARS = (
    Bar("pendulum-medium", ("bc",), "behaviour", 10, "within"),
    Bar("pendulum-medium", ("td3_bc", "cql", "iql"), "behaviour", 20),
    Bar("pendulum-medium", ("td3",), "behaviour", kind="below"),
    Bar("pendulum-mixed", ("iql", "crr"), "bc", 30),
    Bar("pendulum-expert", ("bc",), "behaviour", 10, "within"),
    Bar("pendulum-expert", ("bc", "td3_bc", "iql", "cql", "crr"), None, 90),
    Bar("balance-medium", ("td3_bc", "cql", "iql"), "behaviour", 20),
    Bar("balance-medium", ("td3",), "behaviour", kind="below"),
    Bar("cartpole-replay", ("discrete_cql", "bcq"), "behaviour", kind="above"),
    Bar("cartpole-replay", ("discrete_cql", "bcq"), "bc", kind="above"),
    Bar("breakout-replay", ("discrete_cql", "bcq"), "behaviour", kind="above"),
    Bar("breakout-replay", ("discrete_cql", "bcq"), "bc", kind="above"),
)
"""The bars, which were chosen after a pilot study with seeds from 100 on. See also `Data.changed`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code.

    0: the bars are reached; 1: a bar isn't reached, or a run failed; 2: a usage error; 128 + n: signal n stopped it.
    """
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.learning.offline", lambda: _main(options))


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.offline",
        description=f"{__doc__} Finished runs are not run again; stopped runs are resumed.",
    )
    made.add_argument(
        "--data", nargs="+", default=list(DATA), metavar="NAME", help=f"data sets: {', '.join(DATA)} (all)"
    )
    made.add_argument("--agents", nargs="+", metavar="NAME", help='agents, such as iql or "10%% bc" (all)')
    command.add(made, seeds=[0, 1, 2], steps="learner steps", runs=RUNS, out=None)
    common.add_set(
        made, "another value for a field of the agents' configs; requires --runs, to which results are written"
    )
    made.add_argument(
        "--recorded", type=pathlib.Path, metavar="DIR", help="folder for the data (data in the folder of runs)"
    )
    return made


def _main(options: argparse.Namespace) -> int:
    for name in options.data:
        if name not in DATA:
            raise UsageError(f"there is no data set {name!r}: {nearest(name, DATA)}")
    known = [name for learners in LEARNERS.values() for name in learners]
    for name in options.agents or ():
        if name not in known:
            raise UsageError(f"there is no agent {name!r} here: {nearest(name, known)}")
    if options.steps is not None and options.steps < 1:
        raise UsageError("--steps must be at least 1.")
    command.check_seeds(options.seeds)
    changed = split_assignments(options.set)
    if changed and options.runs == RUNS:
        raise UsageError("--set requires --runs, because the runs differ from the table's.")
    usual = options.steps is None and not changed and max(options.seeds) < 100
    path = RESULTS if usual else options.runs / "offline.json"
    files.make_writable_folder(path.parent)
    recorded = options.recorded or options.runs / "data"
    for name in options.data:
        steps = options.steps or DATA[name].steps
        written = files.read_json(path) if path.is_file() else {}
        entry = written.setdefault(name, {"seeds": {}})
        made = make(name, recorded)
        if entry.get("recorded") != made or entry.get("steps", steps) != steps:  # not to be mixed with those
            entry = written[name] = {"recorded": made, "seeds": {}}
        for label, learner in LEARNERS[DATA[name].learners].items():
            if options.agents and label not in options.agents:
                continue
            learner = dataclasses.replace(learner, config={**learner.config, **changed})
            for seed in options.seeds:
                run_dir = options.runs / f"{name}-{label}".replace("% ", "-") / f"seed-{seed}"
                experiment = _experiment(name, learner, recorded / name, seed, steps, run_dir)
                if not learning.finished(experiment):
                    print(f"{label} of {name}, seed {seed}: {run_dir}", flush=True)
                    result = launch.run(experiment, quiet=not sys.stderr.isatty())
                    if result.stopped_by is not None:
                        print("not finished; the same command resumes the run.")
                        return 128 + result.stopped_by
                score = float(np.mean(RunDirectory.open(run_dir).read_evaluation()["returns"]))
                entry["seeds"].setdefault(label, {})[str(seed)] = round(score, 2)
        files.write_json(path, {**written, name: {**entry, "steps": steps, "machine": report.machine(after=True)}})
    print("\n".join(table(path)))
    print("written:", path)
    return 0 if all(verdict[-1] for verdict in verdicts(files.read_json(path))) else 1


def _experiment(
    name: str, learner: Learner, folder: pathlib.Path, seed: int, steps: int, run_dir: pathlib.Path
) -> launch.Experiment:
    environment = TRAINED[DATA[name].expert].environment
    builder = configure_builder(builders.load(learner.agent)().for_environment(environment), learner.config)
    return launch.Experiment(
        builder,
        environment,
        steps=steps,
        seed=seed,
        evaluation=launch.Evaluation(every=steps // 5, final_episodes=EPISODES),
        run_dir=str(run_dir),
        data=str(folder) if learner.best == 1 else f"{folder}?best={learner.best:g}",
    )


def make(name: str, recorded: pathlib.Path) -> dict[str, Any]:
    """Makes a data set if it doesn't exist yet: trains the agents and records their policies; returns facts about it.

    Args:
        name: a name in `DATA`.
        recorded: the folder for the data sets and for the training runs.
    """
    done = recorded / f"{name}.json"
    if done.is_file():
        return files.read_json(done)
    folder, data = recorded / name, DATA[name]
    environment = TRAINED[data.expert].environment
    ends = recorded / f"{data.expert}-ends.json"
    replayed = {part.trained: folder for part in data.parts if part.policy == "replay"}
    if not ends.is_file():
        train(TRAINED[data.expert], recorded / f"{data.expert}-run", {}, replayed.get(data.expert))
        expert = launch.load(recorded / f"{data.expert}-run").evaluate(100).returns.mean()
        files.write_json(ends, {"random": validation.random_return(environment), "expert": round(float(expert), 2)})
    known = files.read_json(ends)
    if any(part.policy != "replay" for part in data.parts):
        shutil.rmtree(folder, ignore_errors=True)
    trained_steps = []
    for part in data.parts:
        run_dir = recorded / f"{part.trained}-run"
        trained_steps.append(train(TRAINED[part.trained], run_dir, known, replayed.get(part.trained)))
        if part.policy != "replay":
            record_run(run_dir, folder, steps=part.steps, policy=part.policy, config=part.config)
    held = Folder(folder)
    known |= {
        "steps": held.steps,
        "episodes": len(held.returns),
        "returns": [round(float(held.returns.mean()), 2), *np.percentile(held.returns, (0, 50, 100)).round(2).tolist()],
        "trained_steps": trained_steps,
        "sha256": held.digest,
    }
    files.write_json(done, known)
    return known


def train(
    trained: Trained, run_dir: pathlib.Path, known: Mapping[str, float], record: pathlib.Path | None = None
) -> int:
    """Trains an agent that generates data, or resumes its run; returns the environment steps that it took.

    Args:
        trained: the agent.
        run_dir: the directory of its run.
        known: the mean returns of random actions and of the expert.
        record: the folder for recording its training episodes; None to record nothing.
    """
    steps = trained.steps if trained.share is None else trained.first
    while True:
        experiment = trained.experiment(run_dir, steps)
        if not learning.finished(experiment):
            result = launch.run(experiment, record=record, quiet=not sys.stderr.isatty())
            if result.stopped_by is not None:
                raise SystemExit(128 + result.stopped_by)
        evaluation = RunDirectory.open(run_dir).read_evaluation()
        if trained.share is None or _score(float(np.mean(evaluation["returns"])), known) >= 100 * trained.share:
            return evaluation["environment_steps"]
        if steps >= trained.steps:
            raise RunError(
                f"{trained.agent} did not reach {trained.share:.0%} of the expert's score in {steps:,} steps."
            )
        steps = evaluation["environment_steps"] // trained.every * trained.every + trained.every


def scores(entry: Mapping[str, Any]) -> dict[str, list[float]]:
    """Returns the scores of a data set's policies, as `behaviour`, and of each learner's seeds.

    A score of 0 is the mean return of random actions, and 100 the expert's.

    Args:
        entry: a data set's entry in the JSON file.
    """
    known = entry["recorded"]
    found = {label: [_score(value, known) for value in seeds.values()] for label, seeds in entry["seeds"].items()}
    return {"behaviour": [_score(known["returns"][0], known)], **found}


def _score(value: float, known: Mapping[str, float]) -> float:
    return 100 * (value - known["random"]) / (known["expert"] - known["random"])


_CHANGED = " after a change"  # see `Data.changed`


def verdicts(written: Mapping[str, Any]) -> list[tuple[Bar, str, float, float, bool]]:
    """Returns, for each bar and each of its learners that were run: the bar, the learner, the mean score, the score for
    comparison, and whether the bar is reached.
    """
    found = []
    for bar in BARS:
        if bar.data not in written:
            continue
        of = {label: float(np.mean(each)) for label, each in scores(written[bar.data]).items()}
        for label in bar.learners:
            if label in of and (bar.than is None or bar.than in of):
                other = of[bar.than] if bar.than else 0.0
                found.append((bar, label, of[label], other, bar.reached(of[label], other)))
    return found


def table(path: pathlib.Path) -> list[str]:
    """Returns the lines of the page, with the data, the scores, and the bars."""
    written = _read(path)
    lines = ["| data | who acts | trained for | steps | episodes | mean return | score | random | expert |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for name, entry in written.items():
        made = entry["recorded"]
        (behaviour,) = scores(entry)["behaviour"]
        trained = ", ".join(f"{steps:,}" for steps in dict.fromkeys(made["trained_steps"]))
        lines.append(
            f"| `{name}` | {DATA[name].about} | {trained} | {made['steps']:,} | {made['episodes']:,} | "
            f"{made['returns'][0]:.4g} | {behaviour:.0f} | {made['random']:.4g} | {made['expert']:.4g} |"
        )
    for kind, learners in LEARNERS.items():
        names = [name for name in written if DATA[name].learners == kind]
        if not names:
            continue
        lines += ["", f"| agent | {' | '.join(f'`{name}`' for name in names)} | not the defaults |"]
        lines.append(f"|---|{'--:|' * len(names)}---|")
        found = [scores(written[name]) for name in names]
        for label in ("behaviour", *learners):
            if not any(label in each for each in found):
                continue
            cells = [_cell(each.get(label)) for each in found]
            changed = "" if label == "behaviour" else ", ".join(f"`{n}={v}`" for n, v in learners[label].config.items())
            lines.append(f"| {label} | {' | '.join(cells)} | {changed} |")
    lines += ["", "| data | agent | bar | score | of what it is compared with | |", "|---|---|---|--:|--:|---|"]
    for bar, label, score, other, reached in verdicts(written):
        compared = f"{other:.1f}" if bar.than else ""
        verdict = ("reached" if reached else "**MISSED**") + _CHANGED * DATA[bar.data].changed
        lines.append(f"| `{bar.data}` | {label} | {bar} | {score:.1f} | {compared} | {verdict} |")
    return lines


def _read(path: pathlib.Path) -> dict[str, Any]:
    """Returns the JSON file's entries for data sets, in the order of `DATA`."""
    written = files.read_json(path)
    return {name: written[name] for name in DATA if name in written}


def agent_table(agent: str, path: pathlib.Path) -> list[str]:
    """Returns the lines of an agent's page about its results on recorded data, if there are any."""
    written = _read(path) if path.is_file() else {}
    rows = []
    for name, entry in written.items():
        found = scores(entry)
        (behaviour,) = found["behaviour"]
        for label, learner in LEARNERS[DATA[name].learners].items():
            if learner.agent == agent and label in found:
                bars = [
                    f"{b}: {'reached' if ok else 'MISSED'}{_CHANGED * DATA[name].changed}"
                    for b, who, *_, ok in verdicts({name: entry})
                    if who == label
                ]
                share = "" if learner.best == 1 else f", best {learner.best:.0%}"
                rows.append(
                    f"| `{name}`{share} | {entry['steps']:,} | {len(found[label])} | {behaviour:.0f} | "
                    f"{np.mean(found[label]):.0f} | {min(found[label]):.0f} | {'; '.join(bars)} |"
                )
    if not rows:
        return []
    return [
        "| recorded data | learner steps | seeds | who acted | mean | least | bar |",
        "|---|--:|--:|--:|--:|--:|---|",
        *rows,
        "",
        "Scores after learning from recorded data alone: 0 is random actions', 100 the expert's. [The table of all "
        "agents](../../benchmarks/results/offline.md) says how the data is made, and has the changes and settings.",
    ]


def _cell(found: Sequence[float] | None) -> str:
    if not found:
        return ""
    return f"{np.mean(found):.0f}" + (f" ({min(found):.0f})" if len(found) > 1 else "")


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.faults.exact`: whether runs of one seed are equal, and whether a killed one goes on exactly.

For each agent it trains three times in one process with the embedded table, and saves at fixed steps. The second run
is the first one repeated. The third is killed by SIGKILL after its first such checkpoint, and resumed from there. Both
must equal the first to the last bit: logs, parameters, optimizer, table and random states.
"""

import argparse
import dataclasses
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, NamedTuple

import jax

from acme_ext import builders, envs, launch
from acme_ext.errors import RunError, UsageError
from acme_ext.utils import files
from benchmarks.shared import command
from benchmarks.shared.same_runs import differences

RUNS = pathlib.Path("runs") / "benchmarks" / "exact"
_STEPS, _EVERY = 1200, 500
_ENVIRONMENTS = ("gym:CartPole-v1", "gym:Pendulum-v1", "board:tic_tac_toe")
# Small enough to learn within a few hundred steps; an agent takes those that are fields of its configs.
_CONFIG = {"batch_size": 8, "hidden_sizes": (16, 16), "policy_sizes": (16, 16), "critic_sizes": (16, 16)}
_REPLAY = {"min_size": 50, "max_size": 400, "samples_per_insert": 4.0, "length": 8, "burn_in": 2, "period": 4}


class Row(NamedTuple):
    """What became of an agent's runs."""

    agent: str
    environment: str
    repeated: list[str]  # what differs in the run that was repeated
    resumed: list[str]  # what differs in the run that was killed and resumed
    learner_steps: int


def small(builder: Any) -> Any:
    """Returns a builder whose config is small."""

    def replaced(config: Any, values: dict[str, Any]) -> Any:
        names = {field.name for field in dataclasses.fields(config)}
        return dataclasses.replace(config, **{name: value for name, value in values.items() if name in names})

    config = builder.config
    most = {"min_size": 8, "max_size": 100} if hasattr(config.replay, "length") else {}
    replay = replaced(config.replay, {**_REPLAY, **most})
    return dataclasses.replace(builder, config=replaced(config, {**_CONFIG, "replay": replay}))


def environment_of(agent: str) -> str:
    """Returns the first environment that an agent can act in."""
    for environment in _ENVIRONMENTS:
        builder = small(builders.load(agent)())
        options = builder.preset_for(environment).environment.get(environment.partition(":")[0], {})
        made = envs.canonical_actions(envs.make(environment, **options))
        try:
            builder.make_agent(envs.make_spec(made))
        except UsageError:
            continue
        finally:
            made.close()
        return environment
    raise UsageError(f"{agent} can act in none of {', '.join(_ENVIRONMENTS)}.")


def experiment(agent: str, environment: str, folder: pathlib.Path, data: pathlib.Path) -> launch.Experiment:
    """Returns an agent's experiment; one that needs recorded experience gets the folder `data`."""
    builder = small(builders.load(agent)())
    given: dict[str, Any] = {"table": "embedded"}
    if builder.wants_data:
        given = {"data": str(data)}
    elif builder.wants_demos:
        given["demos"] = str(data)
    return launch.Experiment(
        builder,
        environment,
        steps=_STEPS,
        num_envs=2,
        evaluation=launch.Evaluation(every=400, episodes=2, final_episodes=2),
        checkpoints=launch.Checkpoints(steps=_EVERY, every_s=1.0),
        run_dir=str(folder),
        **given,
    )


def measure(agent: str, runs: pathlib.Path) -> Row:
    """Trains an agent three times and compares the runs; returns the row of an earlier call if there is one."""
    done = runs / agent / "row.json"
    if done.is_file():
        return Row(**files.read_json(done))
    environment = environment_of(agent)
    data = runs / f"data-{environment.partition(':')[2]}"
    builder = builders.load(agent)()
    if (builder.wants_data or builder.wants_demos) and not data.exists():
        _train("random", environment, runs / "recorded", data)
    folders = [runs / agent / name for name in ("first", "repeated", "resumed")]
    for folder in folders[:2]:
        _train(agent, environment, folder, data)
    _train(agent, environment, folders[2], data, kill=True)
    _train(agent, environment, folders[2], data)
    found = [differences(folders[0], folder) for folder in folders[1:]]
    checkpoint = max(path for path in (folders[0] / "checkpoints").iterdir() if path.name.isdigit())
    steps = files.read_json(checkpoint / "state.json")["counts"]["learner_steps"]
    row = Row(agent, environment, *found, steps)
    files.write_json(done, row._asdict())
    return row


def _train(agent: str, environment: str, folder: pathlib.Path, data: pathlib.Path, *, kill: bool = False) -> None:
    given = [sys.executable, "-m", "benchmarks.faults.exact", "--worker", agent, environment, str(folder), str(data)]
    process = subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        while kill and process.poll() is None and not _saved(folder):
            time.sleep(0.01)
        if kill:
            process.send_signal(signal.SIGKILL)
        text, _ = process.communicate()
    finally:
        process.kill()
        process.wait()
    if not kill and process.returncode:
        raise RunError(f"{agent} failed:\n{text}")


def _saved(folder: pathlib.Path) -> bool:
    return any(int(path.parent.name[:12]) >= _EVERY for path in folder.glob("checkpoints/0*/manifest.json"))


def _work(agent: str, environment: str, folder: str, data: str) -> None:
    """Trains once, in a process of its own; the agent `random` records experience."""
    if agent == "random":
        recording = experiment("dqn" if "CartPole" in environment else "td3", environment, pathlib.Path(folder), data)
        launch.run(dataclasses.replace(recording, run_dir=folder), quiet=True, record=data, fresh=True)
        return
    launch.run(experiment(agent, environment, pathlib.Path(folder), pathlib.Path(data)), quiet=True, exact=True)


def page(rows: list[Row]) -> str:
    """Returns the results as Markdown."""
    lines = [
        "# Equal runs\n",
        "Written by `python -m benchmarks.faults.exact`. Each agent was trained three times with one seed, in one "
        f"process with the embedded table, for {_STEPS:,} steps: once, once more, and once killed by SIGKILL after the "
        f"first of its checkpoints at every {_EVERY} steps and resumed from there. Compared are logs, parameters, "
        f"optimizer, table and random states. Python {platform.python_version()}, JAX {jax.__version__}, "
        f"{jax.default_backend()}.\n",
        "| agent | environment | learner steps | repeated | killed and resumed |",
        "|---|---|--:|---|---|",
    ]
    for row in rows:
        same = ["equal" if not each else f"differs: {', '.join(each[:3])}" for each in (row.repeated, row.resumed)]
        lines.append(f"| {row.agent} | {row.environment} | {row.learner_steps:,} | {same[0]} | {same[1]} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.exact", description=__doc__)
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="names from `acme-ext list` (all)")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    command.add(parser, "fresh", runs=RUNS)
    options = parser.parse_args(arguments)
    if options.worker:
        _work(*options.worker)
        return 0
    if options.fresh:
        shutil.rmtree(options.runs, ignore_errors=True)
    rows = []
    for agent in options.agents or builders.AGENTS:
        rows.append(measure(agent, options.runs))
        print(rows[-1], flush=True)
    text = page(rows)
    if not options.agents:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "exact.md").write_text(text, encoding="utf-8")
    print(text)
    return int(any(row.repeated or row.resumed for row in rows))


if __name__ == "__main__":
    sys.exit(command.run("benchmarks.faults.exact", main))

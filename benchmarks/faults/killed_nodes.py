"""`python -m benchmarks.faults.killed_nodes`: the effects of killing a node, for each kind of node and program.

Each row is a separate program: DQN on CartPole with two actors and an inference server. Some steps after its first
checkpoint, one of its processes is killed with SIGKILL. Then the benchmark waits until the program ends, because of
the fault or at its budget. Threads can't be killed; instead, an environment raises an exception.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dm_env

from acme_ext import envs, launch
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.builders import DQN
from acme_ext.errors import RunError
from acme_ext.launch.placement import PROGRAMS
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils import files, loggers
from benchmarks.shared import command, report

RESULTS = pathlib.Path(__file__).parents[1] / "results"
WORLDS = ("threads", "processes", "ray")
NODES = ("actor", "evaluator", "inference", "replay", "learner", "coordinator", "supervisor", "command")
_MARK = "ACME_EXT_FAULTS"  # environment variable that marks a program's processes
_LOOK_S = 0.05
_PATIENCE_S = 240.0
_LATER = 300  # environment steps between the first checkpoint and the fault
_HEAD = [
    "| killed | world | exit code | restarts: nodes | program | steps lost | steps saved at the end | processes left |",
    "|---|---|--:|--:|--:|--:|--:|--:|",
]


@dataclasses.dataclass(frozen=True)
class Trial:
    """A program, and the fault that is injected.

    Attributes:
        node: the node to kill, one of `NODES`.
        world: where the nodes run, one of `WORLDS`.
        restarts: number of allowed restarts per hour.
        steps: the budget in environment steps.
    """

    node: str
    world: str
    restarts: int
    steps: int


class Outcome(NamedTuple):
    """The outcome of a trial."""

    code: int  # exit code of the command
    restarted: int  # number of restarts of nodes
    relaunched: int  # number of restarts of the whole program
    lost: int  # environment steps that were logged, but are not in the checkpoint from which it is resumed
    saved: int  # environment steps of the latest undamaged checkpoint; -1 if there is none
    left: int  # number of the program's processes that are left 3 s after its end


@dataclasses.dataclass(frozen=True)
class Fragile:
    """Makes CartPole environments that take 2 ms per step, and raise when there is a file `raise` in the folder."""

    folder: str

    def __call__(self, seed: int, evaluation: bool) -> dm_env.Environment:
        environment = envs.make_single("gym:CartPole-v1", seed=seed, evaluation=evaluation)
        return environment if evaluation else _Fragile(environment, pathlib.Path(self.folder) / "raise")


class _Fragile(dm_env.Environment):
    def __init__(self, environment: dm_env.Environment, falls: pathlib.Path):
        self._environment, self._falls = environment, falls

    def reset(self) -> dm_env.TimeStep:
        return self._environment.reset()

    def step(self, action: Any) -> dm_env.TimeStep:
        time.sleep(2e-3)
        if self._falls.exists():
            raise ArithmeticError("injected fault")
        return self._environment.step(action)

    def observation_spec(self) -> Any:
        return self._environment.observation_spec()

    def action_spec(self) -> Any:
        return self._environment.action_spec()


def run(name: str) -> int:
    """Runs the trial that is stored in a folder; the entry point of the command."""
    folder = pathlib.Path(name)
    trial: Trial = pickle.loads((folder / "trial").read_bytes())
    experiment = launch.Experiment(
        DQN(DQNConfig(hidden_sizes=(16,), batch_size=16, replay=TransitionConfig(n_step=1, min_size=100))),
        Fragile(name),
        steps=trial.steps,
        evaluation=launch.Evaluation(every=0, final_episodes=1, num_envs=1),
        checkpoints=launch.Checkpoints(every_s=1.0),
        run_dir=str(folder / "run"),
    )
    options = {"restarts": trial.restarts} if trial.restarts else {}
    on = PROGRAMS[trial.world](actors=2, inference="server", **options)
    try:
        result = launch.run(experiment, on, quiet=True)
    except (RunError, ArithmeticError) as error:
        print(error)
        return 1
    return 0 if result.stopped_by is None else 128 + result.stopped_by


def attempt(trial: Trial) -> Outcome:
    """Runs a trial as a separate command."""
    folder, mark = pathlib.Path(tempfile.mkdtemp(prefix="faults-")), uuid.uuid4().hex
    run_folder = folder / "run"
    (folder / "trial").write_bytes(pickle.dumps(trial))
    path = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    code = f"import sys; from benchmarks.faults import killed_nodes; sys.exit(killed_nodes.run({str(folder)!r}))"
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, _MARK: mark},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        _wait_for(process, lambda: any((run_folder / "checkpoints").glob("[0-9]*[0-9]")))
        first = _steps(run_folder)
        _wait_for(process, lambda: _steps(run_folder) > first + _LATER)
        before = _steps(run_folder)
        _strike(trial, folder, mark, process)
        process.wait(_PATIENCE_S)
        time.sleep(3.0 if _marked(mark) else 0.0)
        left, text = len(_marked(mark)), (folder / "said").read_text()
        restored = CheckpointStore(run_folder / "checkpoints").restore({})
        saved = -1 if restored is None else restored.steps
        relaunched = _said(text, "restarts of the whole program")
        again = re.search(r"resuming \S+ at step ([\d,]+)\.", text)
        goes_on = saved if again is None else int(again[1].replace(",", ""))
        return Outcome(
            process.returncode,
            _said(text, "restarts of nodes that had died"),
            relaunched,
            max(0, before - goes_on),
            saved,
            left,
        )
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{trial}: {error}\n{(folder / 'said').read_text()}") from error
    finally:
        for pid in _marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _strike(trial: Trial, folder: pathlib.Path, mark: str, process: subprocess.Popen) -> None:
    if trial.world == "threads":
        (folder / "raise").touch()
    elif trial.node == "command":
        process.kill()
    elif trial.node == "supervisor":  # on Ray, the driver
        subreaper = next(pid for pid in _marked(mark) if _parent(pid) == process.pid)
        os.kill(next(pid for pid in _marked(mark) if _parent(pid) == subreaper), signal.SIGKILL)
    else:
        name = "actor-0" if trial.node == "actor" else trial.node
        log = str(folder / "run" / "logs" / "nodes" / f"{name}.log")
        os.kill(next(pid for pid in _marked(mark) if _output(pid) == log), signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    """Returns the running processes of a program."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and f"{_MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def _parent(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _output(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/1")
    return ""


def _steps(run_folder: pathlib.Path) -> int:
    """Returns the number of environment steps in the log of a run."""
    path = run_folder / "logs" / "actor.csv"
    steps = loggers.read_csv(path).get("environment_steps", ()) if path.is_file() else ()
    return int(max(steps)) if len(steps) else 0


def _said(text: str, what: str) -> int:
    found = re.findall(rf"{what}: (\d+)", text)
    return int(found[-1]) if found else 0


def _wait_for(process: subprocess.Popen, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the program ended, or took too long, before the fault")
        time.sleep(_LOOK_S)


def row(trial: Trial, outcome: Outcome) -> str:
    """Returns a row of the table."""
    what = "actor (raises)" if trial.world == "threads" else trial.node
    saved = f"{outcome.saved:,}" if outcome.saved >= 0 else "the start"
    code = f"{outcome.code}" if outcome.code >= 0 else f"by {signal.Signals(-outcome.code).name}"
    numbers = f"{outcome.restarted} | {outcome.relaunched} | {outcome.lost:,} | {saved} | {outcome.left}"
    return f"| {what} | {trial.world} | {code} | {numbers} |"


def trials(nodes: Sequence[str], worlds: Sequence[str], restarts: int, steps: int) -> list[Trial]:
    """Returns the trials: every node in every world, but on threads only an actor."""
    return [
        Trial(node, world, 0 if world == "threads" else restarts, steps)  # threads are never restarted
        for world in worlds
        for node in nodes
        if world != "threads" or node == "actor"
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults.killed_nodes", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--nodes", nargs="+", default=NODES, choices=NODES, metavar="NODE", help="nodes to kill (all)")
    parser.add_argument(
        "--worlds", nargs="+", default=WORLDS, choices=WORLDS, metavar="WORLD", help="where to run the programs (all)"
    )
    parser.add_argument("--restart", type=int, default=2, metavar="N", help="allowed restarts per hour (%(default)s)")
    parser.add_argument("--steps", type=int, default=6_000, metavar="N", help="environment steps (%(default)s)")
    parser.add_argument(
        "--out", type=pathlib.Path, metavar="DIR", help="also write the page killed-nodes.md to this folder"
    )
    options = parser.parse_args(arguments)
    if options.out is not None:
        files.make_writable_folder(options.out)
    facts, lines = report.machine(), list(_HEAD)
    print("\n".join(lines))
    for trial in trials(options.nodes, options.worlds, options.restart, options.steps):
        lines.append(row(trial, attempt(trial)))
        print(lines[-1], flush=True)
    if options.out is not None:
        said = [
            f"DQN on CartPole, 2 actors and an inference server, a checkpoint every second, a budget of "
            f"{options.steps:,} steps: `{command.line(parser, options)}`.",
            "Steps lost were in the log, and are not in what the program, or its next command, goes on from.",
        ]
        machine = ", ".join(f"{name} {value}" for name, value in facts.items())
        text = "\n".join(["# When a node is killed", "", *said, "", *lines, "", f"{machine}.", ""])
        files.write_text(options.out / "killed-nodes.md", text)
    return 0


if __name__ == "__main__":
    from benchmarks.faults import killed_nodes  # pickled classes are this module's, not those of __main__

    sys.exit(killed_nodes.main())

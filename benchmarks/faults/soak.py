"""`python -m benchmarks.faults.soak`: checks that the memory of a long run stays bounded.

It trains an agent with the command line, in one process or as a program, and measures the memory of all its processes
at regular intervals. The first quarter of the samples doesn't count: libraries warm up and the replay fills.
"""

import argparse
import dataclasses
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import psutil

from acme_ext import builders
from acme_ext.commands import common
from acme_ext.errors import UsageError
from acme_ext.replay.config import TransitionConfig
from benchmarks.shared import command

RUN = pathlib.Path("runs") / "benchmarks" / "soak"

_FOR_EVER = 10**12  # environment steps
_WARM_UP = 0.25  # fraction of the samples that don't count, at the start
_LEAST = 8  # minimum number of samples that count
_REPLAY = "replay.max_size=10000"  # full within the warm-up
_LAST_SAVE_S = 120


@dataclasses.dataclass(frozen=True)
class Sample:
    """A measurement of a run at one time."""

    seconds: float
    steps: int  # environment steps
    megabytes: float  # memory of all processes; shared memory counts once


@dataclasses.dataclass(frozen=True)
class Growth:
    """The growth of a run's memory after the warm-up."""

    first: Sample
    last: Sample
    rate: float  # megabytes per million environment steps: the slope of a line fitted to the samples

    def __str__(self) -> str:
        return (
            f"{self.first.megabytes:,.0f} MB at step {self.first.steps:,}, {self.last.megabytes:,.0f} MB at step "
            f"{self.last.steps:,}: {self.rate:+,.1f} MB in a million steps"
        )


def growth(samples: Sequence[Sample]) -> Growth:
    """Returns the growth of the memory; raises UsageError if there are too few samples."""
    counted = samples[int(_WARM_UP * len(samples)) :]
    if len(counted) < _LEAST or counted[-1].steps == counted[0].steps:
        raise UsageError(f"{len(counted)} samples are too few to tell: give more --minutes, or a smaller --every.")
    steps = np.array([sample.steps for sample in counted], float)
    megabytes = np.array([sample.megabytes for sample in counted])
    return Growth(counted[0], counted[-1], 1e6 * float(np.polyfit(steps, megabytes, 1)[0]))


def watch(process: subprocess.Popen, run: pathlib.Path, seconds: float, every_s: float) -> list[Sample]:
    """Measures a run every `every_s` seconds, and prints the measurements.

    It starts at the end of the run's first episode, and stops after `seconds` or when the run ends.
    """
    while not _steps(run) and process.poll() is None:
        time.sleep(0.1)
    samples, began = [], time.monotonic()
    while (now := time.monotonic() - began) < seconds and process.poll() is None:
        samples.append(Sample(now, _steps(run), _megabytes(process.pid)))
        print(f"{now / 60:7.1f} min {samples[-1].steps:14,} steps {samples[-1].megabytes:10,.0f} MB", flush=True)
        time.sleep(max(0.0, min(every_s, seconds - now)))
    return samples


def _megabytes(pid: int) -> float:
    total = 0
    try:
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue  # it has just ended
    except psutil.NoSuchProcess:
        pass
    return total / 2**20


def _steps(run: pathlib.Path) -> int:
    """Returns the step in the last complete row of an actor's log."""
    path = run / "logs" / "actor.csv"
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        header = file.readline()
        if not header.endswith(b"\n"):
            return 0
        column = header.decode().strip().split(",").index("environment_steps")
        file.seek(max(file.tell(), path.stat().st_size - 4096))
        lines = file.read().split(b"\n")[:-1]  # the last one is incomplete or empty
    return int(float(lines[-1].split(b",")[column])) if lines else 0


def _command(options: argparse.Namespace) -> list[str]:
    words = ["train", options.agent, options.environment, "--steps", str(_FOR_EVER), "--quiet", "--fresh"]
    words += ["--run-dir", str(options.run_dir), "--num-envs", str(options.num_envs)]
    words += ["--actors", str(options.actors)] if options.actors else []
    replay = getattr(builders.load(options.agent)().config, "replay", None)
    fields = [_REPLAY] * isinstance(replay, TransitionConfig) + options.set  # the last value counts
    return [sys.executable, "-m", "acme_ext", *words, *(w for text in fields for w in ("--set", text))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code.

    0: the growth is within the bound; 1: it isn't, or the run failed; 2: a usage error.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.soak", description=__doc__)
    parser.add_argument("agent", nargs="?", default="dqn", help="name of the agent (%(default)s)")
    parser.add_argument("environment", nargs="?", default="gym:CartPole-v1", help="environment (%(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="M", help="minutes of the run (%(default)s)")
    parser.add_argument("--every", type=float, default=10.0, metavar="S", help="seconds between samples (%(default)s)")
    parser.add_argument(
        "--bound", type=float, default=50.0, metavar="MB", help="maximum growth in a million steps (%(default)s)"
    )
    parser.add_argument("--actors", type=int, metavar="N", help="run a program with N actors")
    parser.add_argument("--num-envs", type=int, default=8, metavar="N", help="environments per actor (%(default)s)")
    common.add_set(parser, f"a field of the agent's config; {_REPLAY} if no other size is given")
    parser.add_argument("--run-dir", type=pathlib.Path, default=RUN, metavar="DIR", help="run directory (%(default)s)")
    options = parser.parse_args(arguments)
    return command.run("benchmarks.faults.soak", lambda: _soak(options))


def _soak(options: argparse.Namespace) -> int:
    process = subprocess.Popen(_command(options), stdout=subprocess.DEVNULL)
    try:
        samples = watch(process, options.run_dir, 60 * options.minutes, options.every)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(_LAST_SAVE_S)
    if code != 128 + signal.SIGTERM:
        print(f"benchmarks.faults.soak: the run ended by itself, with exit code {code}.", file=sys.stderr)
        return 1
    found = growth(samples)
    held = found.rate <= options.bound
    print(f"{found}; the bound is {options.bound:g}: {'held' if held else 'MISSED'}.")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

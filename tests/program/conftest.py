"""Starting programs in tests."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from programs import FIELDS, Cluster, Running


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts a Python command line, and at the test's end whatever of it still runs is killed."""
    started: list[Running] = []

    def begin(line: list[str], run: Path, **variables: str) -> Running:
        folder = tmp_path / f"printed-{len(started)}"
        started.append(Running([sys.executable, *line], run, folder, **variables))
        return started[-1]

    yield begin
    for running in started:
        for process in running.processes():
            process.kill()
        running.process.wait()


@pytest.fixture
def train(launch: Callable[..., Running]) -> Callable[..., Running]:
    """Starts `acme-ext train` as a program with 2 actors, for as many steps as `steps`, with further options."""

    def begin(run: Path, steps: int, *options: str, **variables: str) -> Running:
        fields = [word for name, value in FIELDS.items() for word in ("--set", f"{name}={value}")]
        given = ["--steps", str(steps), "--run-dir", str(run), "--eval-every", "0", "--eval-episodes", "2"]
        command = ["train", "dqn", "gym:lab_walk:LabWalk-v0", "--actors", "2", *given, *fields, *options]
        return launch(["-m", "acme_ext", *command], run, **variables)

    return begin


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    yield running
    running.end()

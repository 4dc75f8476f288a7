"""Measures how long a learner is blocked while its replay is saved: `python -m benchmarks.speed.save_pause`.

The replay is a server in a separate process, as in a program, and the learner samples from it. A checkpoint is written
in the same way as in a learner's node: by a thread, while the learner continues. Reverb answers no requests while it
copies a table, so the learner is blocked once it has used its prefetched batches.
"""

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax

from acme_ext.agents.dqn.config import ATARI, DQNConfig
from acme_ext.builders.dqn import DQN
from acme_ext.errors import UsageError
from acme_ext.launch.engines.program.nodes.replay import RemoteReplay
from acme_ext.launch.runs.saving import Contents, RunCheckpoints
from acme_ext.launch.runs.schedule import Checkpoints
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.reverb.store import RemoteReverbTable
from acme_ext.replay.shards import Shards
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import files
from acme_ext.utils.rundir import RunDirectory
from benchmarks.shared import command, report
from benchmarks.speed import cartpole, images
from benchmarks.speed.tables import fill

RESULTS = pathlib.Path(__file__).parents[1] / "results"
_ENVS = 16  # environments whose steps fill the replay
_WARM_S, _BEFORE_S = 3.0, 5.0  # seconds of learning as a warm-up, and as the reference
_MLP = DQNConfig(hidden_sizes=(64, 64), batch_size=128)


class Kind(NamedTuple):
    """A replay, and the learner for it."""

    name: str
    spec: EnvironmentSpec
    config: DQNConfig
    timesteps: Callable[[int], list]
    share: float = 1.0  # fraction of the requested rows
    shards: int = 1  # number of servers, which are saved at the same time


class Pause(NamedTuple):
    """The cost of a checkpoint.

    Attributes:
        items: number of Reverb items in the table.
        nbytes: size of the replay's files, in bytes.
        seconds: duration of the checkpoint.
        usual: seconds of the longest learner call before the checkpoint.
        longest: seconds of the longest learner call during the checkpoint.
        rate: learner calls per second during the checkpoint, relative to the rate before.
    """

    items: int
    nbytes: int
    seconds: float
    usual: float
    longest: float
    rate: float


def kinds() -> list[Kind]:
    """Returns the replays to measure."""
    blocks = dataclasses.replace(_MLP.replay, rows_per_item=_ENVS)
    of_priorities = dataclasses.replace(_MLP, replay=dataclasses.replace(_MLP.replay, prioritized=True))
    pictures = DQNConfig(image_features=ATARI.image_features, batch_size=32, replay=blocks)
    return [
        Kind(f"blocks of {_ENVS} rows", cartpole.SPEC, dataclasses.replace(_MLP, replay=blocks), cartpole.timesteps),
        Kind("prioritized", cartpole.SPEC, of_priorities, cartpole.timesteps),
        Kind("prioritized, 4 shards", cartpole.SPEC, of_priorities, cartpole.timesteps, shards=4),
        Kind("pictures, 84x84x4", images.SPEC, pictures, images.timesteps, share=0.01),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code, as `benchmarks.learning` does."""
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.speed.save_pause", lambda: _main(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.save_pause", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N", help="rows in the replay (%(default)s)")
    command.add(parser, out=RESULTS)
    return parser


def _main(options: argparse.Namespace) -> int:
    if options.rows < 10_000:
        raise UsageError("--rows must be at least 10000.")
    files.make_writable_folder(options.out)
    facts = report.machine()
    found = {}
    for kind in kinds():
        rows = int(kind.share * options.rows)
        found[f"{kind.name}, {rows:,} rows"] = measured = measure(kind, rows)
        print(f"{kind.name}: {measured}", flush=True)
    text = page(found, options.rows, facts)
    (options.out / "save-pause.md").write_text(text)
    print(text)
    return 0


def measure(kind: Kind, rows: int) -> Pause:
    """Fills a replay with `rows` rows, learns from it, and saves it."""
    agent = DQN(kind.config).make_agent(kind.spec)
    whole: Any = dataclasses.replace(agent.replay, limit=RateLimit(), max_size=rows)
    replay, calls = whole.split(kind.shards), agent.sgd_steps_per_call
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        ports = [stack.enter_context(_served(replay, pathlib.Path(name))) for _ in range(kind.shards)]
        tables = [RemoteReverbTable(replay, f"localhost:{port}") for port in ports]
        timesteps = kind.timesteps(_ENVS)
        for table in tables:
            fill(table, replay, timesteps, -(-replay.max_size // (_ENVS * (len(timesteps) - 1))))
        dataset: Any = Shards([table.batches(calls) for table in tables], calls)
        learner = agent.make_learner(dataset, tables, jax.random.key(0), devices=None)
        checkpoints = RunCheckpoints(RunDirectory(pathlib.Path(name) / "run"), Checkpoints(), print)
        remote = RemoteReplay(tables)

        def save() -> float:
            begun = time.monotonic()
            checkpoints.save(1, Contents(trees, {}, remote))
            return time.monotonic() - begun

        try:
            _calls(learner, time.monotonic() + _WARM_S)
            before = _calls(learner, time.monotonic() + _BEFORE_S)
            trees = {"learner": learner.save()}
            with futures.ThreadPoolExecutor(1) as pool:
                saving = pool.submit(save)
                during = _calls(learner, None, saving.done)
                seconds = saving.result()
        finally:
            learner.close()
        written = sum(path.stat().st_size for path in pathlib.Path(name).rglob("*.tfrecord"))
        items = sum(table.counts().size // replay.block for table in tables)
    rate = (len(during) / sum(during)) / (len(before) / sum(before))
    return Pause(items, written, seconds, max(before), max(during), rate)


def _calls(learner: Any, until: float | None, done: Callable[[], bool] = lambda: False) -> list[float]:
    """Returns the seconds of each of a learner's calls, until the time `until`, or until `done`.

    It waits for each call to complete. Otherwise a call may have to wait for all queued ones.
    """
    seconds, at = [], time.monotonic()
    while not done() and (until is None or at < until):
        learner.step()
        learner.check()
        seconds.append(time.monotonic() - at)
        at += seconds[-1]
    return seconds


@contextlib.contextmanager
def _served(replay: Any, scratch: pathlib.Path) -> Iterator[int]:
    """Runs a replay's server in another process; yields its port."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(replay, scratch, theirs, os.getpid()))
    process.start()
    try:
        yield pipe.recv()
    finally:
        process.kill()
        process.join()


def _serve(replay: Any, scratch: pathlib.Path, pipe: Any, parent: int) -> None:
    from acme_ext.replay.reverb.store import ReverbStore

    command.end_with(parent)
    server = ReverbStore(replay, scratch=scratch)
    pipe.send(server.port)
    signal.pause()


def page(found: dict[str, Pause], rows: int, facts: dict[str, Any]) -> str:
    """Returns the page as Markdown.

    Args:
        found: the results, by the description of the replay.
        rows: requested number of rows.
        facts: facts about the machine.
    """
    lines = [
        "# A learner while its replay is saved",
        "",
        f"`python -m benchmarks.speed.save_pause --rows {rows}`: a DQN learner draws from a replay in a process of "
        "its own, which is saved once. The longest call of the learner is its longest pause. The replay is served and "
        "written on the same cores.",
        "",
        "| replay | items | MB written | seconds to save | longest call before | longest call meanwhile | "
        "calls/s meanwhile, beside before |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, one in found.items():
        lines.append(
            f"| {name} | {one.items:,} | {one.nbytes / 1e6:,.0f} | {one.seconds:.1f} | {one.usual:.2f} s | "
            f"{one.longest:.2f} s | {one.rate:.2f} |"
        )
    return "\n".join([*lines, "", f"{', '.join(f'{name} {value}' for name, value in facts.items())}.", ""])


if __name__ == "__main__":
    sys.exit(main())

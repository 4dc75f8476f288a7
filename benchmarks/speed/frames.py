"""Compares the memory of replays with each frame once and with whole stacks: `python -m benchmarks.speed.frames`.

A random policy plays the game. For transitions of one step and of three steps, and for sequences, it prints the bytes
of an item's row and the item's memory in Reverb's server, which compresses it. The memory is the growth of a process
that runs the server.
"""

import argparse
import dataclasses
import multiprocessing
import sys
from collections.abc import Sequence

import numpy as np
import psutil
from dm_env import specs

from acme_ext import envs
from acme_ext.agents.r2d2.config import ATARI
from acme_ext.replay import SequenceReplay, TransitionReplay
from acme_ext.replay.base import Replay
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.types import EnvironmentSpec
from benchmarks.shared import command

_ENVS = 4
_STEPS = {"transitions, n = 1": 6_000, "transitions, n = 3": 6_000, "sequences": 3_000}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code: 0, or 2 for a usage error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.frames", description=__doc__)
    parser.add_argument("games", metavar="GAME", nargs="*", default=["envpool:Pong-v5"])
    options = parser.parse_args(arguments)
    return command.run("benchmarks.speed.frames", lambda: _main(options.games))


def _main(games: Sequence[str]) -> int:
    print("| game | items | frames | bytes of a row | bytes in memory |\n|---|---|---|--:|--:|", flush=True)
    for game in games:
        envs.check_environment(game)
        for kind in _STEPS:
            for once in (False, True):
                with multiprocessing.get_context("spawn").Pool(1) as process:
                    row, memory = process.apply(measure, (game, kind, once))
                print(f"| {game} | {kind} | {'once' if once else 'in stacks'} | {row:,} | {memory:,.0f} |", flush=True)
    return 0


def measure(game: str, kind: str, once: bool) -> tuple[int, float]:
    """Returns the size of an item's row and the memory for an item, both in bytes."""
    environment = envs.make(game, num_envs=_ENVS, seed=0)
    spec: EnvironmentSpec = envs.make_spec(environment)
    if not once:
        stacks = spec.observations
        plain = specs.BoundedArray(stacks.shape, stacks.dtype, stacks.minimum, stacks.maximum, stacks.name)
        spec = spec._replace(observations=plain)
    replay = replay_of(spec, kind)
    rng, server = np.random.default_rng(0), ReverbStore(replay)
    writer = replay.writer(server.table.sink(), _ENVS)
    writer.add_first(environment.reset())
    process, before, held = psutil.Process(), 0, 0
    for step in range(_STEPS[kind]):
        action = rng.integers(0, spec.actions.num_values, _ENVS).astype(spec.actions.dtype)
        writer.add(action, environment.step(action))
        if step == _STEPS[kind] // 5:  # after the allocations for the first items
            writer.wait()
            before, held = process.memory_info().rss, writer.inserted
    writer.wait()
    grown = process.memory_info().rss - before
    return replay._layout.nbytes, grown / (writer.inserted - held)


def replay_of(spec: EnvironmentSpec, kind: str) -> Replay:
    """Returns the replay for a kind of items; sequences have the length that R2D2 uses on Atari."""
    if kind == "sequences":
        config = dataclasses.replace(ATARI.replay, prioritized=False)
        return SequenceReplay.of(spec, config, batch_size=1, discount=0.997)
    return TransitionReplay(spec, batch_size=8, n_step=int(kind[-1]), rows_per_item=1, max_size=1_000_000)


if __name__ == "__main__":
    sys.exit(main())

"""Writing experience: environment steps per second into Reverb."""

import contextlib

import numpy as np
import reverb
import tensorflow as tf
from acme.adders import reverb as adders
from reverb import structured_writer

from acme_ext.replay.limits import RateLimit
from acme_ext.replay.nstep import transition_spec
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.replay.rows import Layout
from acme_ext.replay.transitions import TransitionReplay
from benchmarks.shared.measure import Contestant, best, rates
from benchmarks.shared.report import Figure, against, figure
from benchmarks.speed import cartpole
from benchmarks.speed.tables import PENDING

_BATCHES = (1, 8, 32)
_STEPS = (1, 3)
_DISCOUNT = 0.99
_GOAL = 6.0  # relative to Acme's adder
_BURSTS = (16, 128)  # rows per flush of the bare writer


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures the writer, compared with its limit, a bare StructuredWriter with packed rows, and with Acme's adder."""
    with contextlib.ExitStack() as stack:
        # Not kept in a variable: a server that stops waits some seconds for writers that still exist.
        measured = rates(_contestants(stack), seconds, rounds)
    bare = best([measured[f"bare {burst}"] for burst in _BURSTS])
    return [
        figure(
            "writer",
            f"TransitionReplay.writer B={b} n={n}",
            "steps/s",
            ours := measured[f"B={b} n={n}"],
            [
                against(ours, "bare StructuredWriter, packed rows", bare),
                against(ours, f"acme NStepTransitionAdder n={n}, one environment", measured[f"acme n={n}"], _GOAL),
            ],
        )
        for n in _STEPS
        for b in _BATCHES
    ]


def _contestants(stack: contextlib.ExitStack) -> dict[str, Contestant]:
    contestants = {f"bare {burst}": _bare(stack, burst) for burst in _BURSTS}
    for n in _STEPS:
        contestants[f"acme n={n}"] = _acme(stack, n)
        contestants |= {f"B={b} n={n}": _ours(stack, b, n) for b in _BATCHES}
    return contestants


def _serve(stack: contextlib.ExitStack, replay: TransitionReplay) -> ReverbStore:
    server = ReverbStore(replay)
    stack.callback(server.close)
    return server


def _replay(n_step: int) -> TransitionReplay:
    return TransitionReplay(
        cartpole.SPEC, batch_size=128, n_step=n_step, discount=_DISCOUNT, max_size=10_000, limit=RateLimit()
    )


def _ours(stack: contextlib.ExitStack, num_envs: int, n_step: int) -> Contestant:
    replay = _replay(n_step)
    writer = replay.writer(_serve(stack, replay).table.sink(), num_envs, max_pending=PENDING)
    stack.callback(writer.close)
    made = cartpole.timesteps(num_envs)
    steps = sum(int(np.count_nonzero(timestep.step_type)) for timestep in made)
    action = np.zeros(num_envs, np.int32)
    writer.add_first(made[-1])

    def work() -> int:
        for timestep in made:
            writer.add(action, timestep)
        return steps

    return Contestant(work, finish=writer.wait)


def _bare(stack: contextlib.ExitStack, burst: int) -> Contestant:
    replay = _replay(1)
    shape = (Layout(transition_spec(cartpole.SPEC)).nbytes,)
    pattern = structured_writer.pattern_from_transform(tf.TensorSpec(shape, tf.uint8), lambda column: column[-1])
    config = structured_writer.create_config(pattern=pattern, table=replay.table)
    writer = _serve(stack, replay).client.structured_writer([config])
    rows = np.random.default_rng(0).integers(256, size=(burst, *shape), dtype=np.uint8)

    def work() -> int:
        for row in rows:
            writer.append(row)
        writer.flush(PENDING)
        return burst

    return Contestant(work, finish=lambda: writer.flush(0))


def _acme(stack: contextlib.ExitStack, n_step: int) -> Contestant:
    table = reverb.Table(
        name=adders.DEFAULT_PRIORITY_TABLE,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=10_000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=adders.NStepTransitionAdder.signature(cartpole.SPEC),
    )
    adder = adders.NStepTransitionAdder(_serve(stack, [table]).client, n_step, _DISCOUNT)
    first, *rest = cartpole.episode()
    action = np.zeros((), np.int32)

    def work() -> int:
        adder.add_first(first)
        for timestep in rest:
            adder.add(action, timestep)
        return len(rest)

    return Contestant(work)

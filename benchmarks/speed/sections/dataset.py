"""Reading batches: batches per second from a filled table."""

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import reverb
import tensorflow as tf
from acme import datasets
from acme.adders import reverb as adders

from acme_ext.replay.limits import RateLimit
from acme_ext.replay.nstep import transition_spec
from acme_ext.replay.reverb.server import ReverbServer
from acme_ext.replay.reverb.store import ReverbStore, ReverbTable
from acme_ext.replay.rows import Layout
from acme_ext.replay.transitions import TransitionReplay
from benchmarks.shared.measure import Contestant, best, rates
from benchmarks.shared.report import Figure, against, figure
from benchmarks.speed import cartpole
from benchmarks.speed.tables import fill, reader

Order = Literal["uniform", "prioritized"]

_ORDERS: tuple[Order, ...] = ("uniform", "prioritized")
_SIZES = (256, 128)  # items in a batch
_CALLS = (1, 8)  # batches per call
_FORMS = ("plain", "interleaved")  # variants of the bare dataset
_GOAL = 3.0  # relative to Acme's dataset
_EPISODES = 200
_EXPONENT = 0.6


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures the dataset, compared with a bare TrajectoryDataset and with Acme's dataset.

    The TrajectoryDataset reads the same packed table, and is the limit. Acme's dataset reads the five columns of Acme's
    adder.
    """
    figures = []
    for order in _ORDERS:
        with contextlib.ExitStack() as stack:
            contestants = _contestants(stack, order)
            measured = rates(contestants, seconds, rounds)
        for size in _SIZES:
            for count in _CALLS:
                ours = measured[f"ours {size}x{count}"]
                bare = best([measured[f"bare {form} {size}x{count}"] for form in _FORMS])
                references = [
                    against(ours, "bare TrajectoryDataset, packed rows", bare),
                    against(ours, "acme make_reverb_dataset, five columns", measured[f"acme {size}"], _GOAL),
                ]
                name = f"TransitionReplay.dataset {order} {size}, {count} a call"
                figures.append(figure("dataset", name, "batches/s", ours, references))
    return figures


def _contestants(stack: contextlib.ExitStack, order: Order) -> dict[str, Contestant]:
    acme_server = ReverbServer([_acme_table(order)])
    stack.callback(acme_server.close)
    _fill_as_acme(acme_server)
    replays = {
        size: TransitionReplay(
            cartpole.SPEC,
            batch_size=size,
            limit=RateLimit(),
            order=order,
            priority_exponent=_EXPONENT,
        )
        for size in _SIZES
    }
    server = ReverbStore(replays[_SIZES[0]])
    stack.callback(server.close)
    fill(server.table, replays[_SIZES[0]], cartpole.timesteps(8), _EPISODES // 8)
    contestants = {}
    for size, replay in replays.items():
        contestants[f"acme {size}"] = reader(
            iter(datasets.make_reverb_dataset(acme_server.client.server_address, batch_size=size)).__next__, 1
        )
        for count in _CALLS:
            dataset = ReverbTable(replay, server.client).batches(count)
            stack.callback(dataset.close, wake=True)
            contestants[f"ours {size}x{count}"] = reader(dataset.__next__, count)
            for form in _FORMS:
                bare = _bare(server.client.server_address, replay.table, size * count, interleaved=form != "plain")
                contestants[f"bare {form} {size}x{count}"] = reader(bare, count)
    return contestants


def _bare(address: str, table: str, size: int, *, interleaved: bool) -> Callable[[], np.ndarray]:
    shape = (Layout(transition_spec(cartpole.SPEC)).nbytes,)

    def make(_: Any = None) -> tf.data.Dataset:
        dataset = reverb.TrajectoryDataset(
            server_address=address,
            table=table,
            dtypes=tf.uint8,
            shapes=tf.TensorShape(shape),
            max_in_flight_samples_per_worker=2 * size,
        )
        return dataset.batch(size, drop_remainder=True)

    dataset = make()
    if interleaved:
        dataset = tf.data.Dataset.range(2).interleave(make, cycle_length=2, num_parallel_calls=2, deterministic=False)
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    if not interleaved:
        options.threading.private_threadpool_size = 1
    iterator = iter(dataset.with_options(options))
    return lambda: np.asarray(memoryview(next(iterator).data))


def _acme_table(order: Order) -> reverb.Table:
    return reverb.Table(
        name=adders.DEFAULT_PRIORITY_TABLE,
        sampler=reverb.selectors.Prioritized(_EXPONENT) if order == "prioritized" else reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=100_000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=adders.NStepTransitionAdder.signature(cartpole.SPEC),
    )


def _fill_as_acme(server: ReverbServer) -> None:
    adder = adders.NStepTransitionAdder(server.client, 1, 0.99)
    first, *rest = cartpole.episode()
    for _ in range(_EPISODES):
        adder.add_first(first)
        for timestep in rest:
            adder.add(np.zeros((), np.int32), timestep)

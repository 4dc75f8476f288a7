"""The node that acts for all actors: they step environments, it has the policy."""

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import launchpad as lp
import numpy as np
import tree

from acme_ext import envs, specs
from acme_ext.acting.batching import Batcher
from acme_ext.acting.inference import FIRST, Acted, InferenceCore, bucket_sizes, slot_keys
from acme_ext.acting.remote import RemoteVariables, Reply
from acme_ext.launch.experiment import Experiment
from acme_ext.launch.nodes.replay import describe
from acme_ext.launch.nodes.reports import Reporter, StopWaitingError, waiting
from acme_ext.types import Array

_PENDING = 16  # rows, beside a step of all its environments, that the replay may not have taken when a caller goes on
_REPORT_S = 0.1
_LOG_EVERY_S = 1.0
_WAIT_S = 0.002  # that an accelerator waits for more requests; a CPU, whose time grows with the batch, doesn't


class _Request(NamedTuple):
    slots: np.ndarray  # [K]
    keys: Array | None  # [K] of a timeline that begins
    ranks: np.ndarray  # [K]
    ticks: np.ndarray  # [K] int32
    steps: int  # of the environments, that the run has taken
    first: np.ndarray  # [K] bool
    timestep: dm_env.TimeStep


@dataclasses.dataclass
class _Seat:
    """What is known of one caller: an actor's environments, or half of them."""

    slots: np.ndarray
    ranks: np.ndarray
    writer: Any = None  # of its experience, where that is kept here
    run: int = -1  # how often its actor was started before
    tick: int = -1
    acted: tuple[Acted, int] | None = None  # the answer to that request, and the version of the parameters
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class InferenceNode:
    """Applies the policy for all actors, to batches of what they ask, with recurrent state that stays here.

    A call that Courier delivers twice is answered from memory. A caller whose actor was started again, or whom this
    node doesn't know because it was started again itself, begins a new timeline: recurrent state, randomness and
    unfinished sequences are its own. Parameters change between batches only.

    Where the actors don't keep the `experience`, the node writes what it hears to the replay: observations then cross
    the network once, and recurrent state never. A replay that takes no more holds back the answers.

    Args:
        experiment: what is run.
        actors: how many there are.
        replays: Reverb clients, one for each shard; actors are spread over them in turn.
        learner: the learner's client.
        coordinator: the coordinator's.
        callers: of an actor, each with an equal part of its environments.
        experience: whether the actors keep the experience; otherwise this node does.
    """

    def __init__(
        self,
        experiment: Experiment,
        actors: int,
        replays: Sequence[Any],
        learner: Any,
        coordinator: Any,
        *,
        callers: int,
        experience: bool,
    ):
        start = coordinator.enter("inference")
        self._reporter = Reporter(coordinator, f"inference, start {start}")
        self._experiment = experiment
        environment = experiment.make_environment(1)
        spec = envs.make_spec(environment)
        environment.close()
        self._expected = specs.zeros(spec.observations, 1)
        builder, num_envs = experiment.builder, experiment.num_envs
        slots = actors * num_envs
        self._core = InferenceCore(builder.make_policy(spec), slots, buckets=bucket_sizes(slots))
        self._variables = RemoteVariables(
            learner.variables, on_wait=waiting(self._reporter, lambda: "waiting for the learner's first parameters")
        )
        with contextlib.suppress(StopWaitingError):  # then nobody will ask
            _, params = self._variables.held()
            self._core.warm_up(params, self._expected)

        part = builder.make_replay(spec).split(max(1, len(replays)))
        ranks = experiment.ranks(actors)
        self._seats: dict[tuple[int, int], _Seat] = {}
        for actor in range(actors):
            for caller, mine in enumerate(np.array_split(np.arange(num_envs), callers)):
                mine = mine + actor * num_envs
                writer = None
                if not experience:
                    replay = replays[actor % len(replays)]
                    writer = part.writer(
                        replay,
                        len(mine),
                        max_pending=_PENDING + len(mine),
                        on_wait=functools.partial(self._hold_back, replay),
                    )
                self._seats[actor, caller] = _Seat(mine, ranks[mine], writer)
        self._stopping = False
        self._held_back = (0.0, "")  # when a writer last waited, and for what
        accelerated = jax.default_backend() != "cpu"
        self._batcher = Batcher(self._run_batch, most=slots, wait_s=_WAIT_S if accelerated else 0.0)

    def act(
        self, actor: int, caller: int, run: int, tick: int, steps: int, timestep: Sequence[Any], with_state: bool
    ) -> tuple | None:
        """Gives the actions of a caller's environments, a Reply, or None if the program ends; see
        `acting.remote.RemoteInference`.

        Args:
            actor: which.
            caller: which of the actor's.
            run: how often the actor was started before.
            tick: how often this caller has asked since.
            steps: environment steps that the run has taken.
            timestep: the fields of the newest, batched.
            with_state: whether the recurrent state from before is wanted.
        """
        newest = dm_env.TimeStep(*timestep)
        seat = self._seats[actor, caller]
        self._check(newest, len(seat.slots))
        with seat.lock:
            if seat.acted is None or (run, tick) != (seat.run, seat.tick):
                try:
                    seat.acted = self._answer(actor, caller, seat, run, tick, steps, newest)
                except StopWaitingError:
                    return None
                seat.run, seat.tick = run, tick
            acted, version = seat.acted
        if seat.writer is not None:
            return tuple(Reply(acted.action, (), (), version))
        return tuple(Reply(acted.action, acted.extras, acted.state if with_state else (), version))

    def leave(self, actor: int, caller: int, timestep: Sequence[Any]) -> None:
        """Writes what a caller's experience is still unfinished, with the timestep that its last actions led to."""
        seat = self._seats[actor, caller]
        # What the replay doesn't take before the end stays out of it.
        with seat.lock, contextlib.suppress(StopWaitingError):
            if seat.writer is not None and seat.acted is not None:
                self._tell(seat, dm_env.TimeStep(*timestep), goes_on=True)
                seat.acted = None
                seat.writer.flush()
                seat.writer.wait()

    def fill(self) -> tuple[int, int]:
        """Returns how many environments' steps the batches held so far, without and with their padding."""
        return self._core.rows, self._core.padded_rows

    def compilations(self) -> int:
        """Returns how many programs have been compiled."""
        return self._core.compilations()

    def run(self) -> None:
        """Serves until the program ends."""
        logged = time.monotonic()
        try:
            while not lp.wait_for_stop(_REPORT_S):
                waited, reason = self._held_back
                self._reporter.report(reason if time.monotonic() - waited < 1 else "serving")
                rows, padded = self.fill()
                if time.monotonic() - logged > _LOG_EVERY_S and rows:
                    logged = time.monotonic()
                    row = {"inference_steps": rows, "inference_fill": rows / padded}
                    self._reporter.row("inference", row)
        finally:
            self._stopping = True
            self._batcher.close(StopWaitingError())
            self._variables.close()
            for seat in self._seats.values():
                if seat.writer is not None:
                    seat.writer.close()

    def _answer(
        self, actor: int, caller: int, seat: _Seat, run: int, tick: int, steps: int, newest: dm_env.TimeStep
    ) -> tuple[Acted, int]:
        """Has a new request answered; called with the seat's lock held."""
        if (run, tick) < (seat.run, seat.tick):
            raise ValueError(f"request {tick} of start {run} comes after {seat.tick} of start {seat.run}")
        goes_on = seat.acted is not None and (run, tick) == (seat.run, seat.tick + 1)
        if seat.writer is not None:
            self._tell(seat, newest, goes_on)
        count, keys = len(seat.slots), None
        if not goes_on:
            num_envs = self._experiment.num_envs
            key = self._experiment.actor_key(actor, run)
            keys = slot_keys(key, num_envs)[seat.slots - actor * num_envs]
        first = (newest.step_type == FIRST) | (not goes_on)
        ticks = np.full(count, tick, np.int32)
        request = _Request(seat.slots, keys, seat.ranks, ticks, steps, first, newest)
        return self._batcher.ask((actor, caller), count, request)

    def _tell(self, seat: _Seat, newest: dm_env.TimeStep, goes_on: bool) -> None:
        """Tells a seat's writer what its latest actions led to; waits while the replay takes no more."""
        if not goes_on or seat.acted is None:
            seat.writer.add_first(newest)
            return
        acted, _ = seat.acted
        kept = {"state": acted.state} if getattr(seat.writer, "keeps_state", False) else {}
        seat.writer.add(acted.action, newest, acted.extras, **kept)

    def _hold_back(self, replay: Any) -> None:
        """Looks up from a writer's wait."""
        if self._stopping or self._reporter.orders.stop:
            raise StopWaitingError
        waited, reason = self._held_back
        if time.monotonic() - waited > 1:
            reason = f"waiting for the replay to take its rows: {describe(replay)}"
        self._held_back = (time.monotonic(), reason)

    def _check(self, timestep: dm_env.TimeStep, count: int) -> None:
        """Raises ValueError if a timestep isn't what the seat's environments give, which would fail others too."""
        expected = [((count, *leaf.shape[1:]), leaf.dtype) for leaf in tree.flatten(self._expected)]
        found = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in tree.flatten(timestep.observation)]
        if found != expected or any(np.shape(leaf) != (count,) for leaf in timestep[:3]):
            raise ValueError(f"observations are {found} where {expected} was expected")

    def _run_batch(self, requests: Sequence[_Request]) -> list[tuple[Acted, int]]:
        # One look at what is held: all of a batch act on the same parameters.
        version, params = self._variables.held()
        for request in requests:
            if request.keys is not None:
                self._core.seat(request.slots, request.keys, request.ranks)
        timesteps = [request.timestep for request in requests]
        acted = self._core.step(
            params,
            np.concatenate([request.slots for request in requests]),
            np.concatenate([request.ticks for request in requests]),
            max(request.steps for request in requests),
            np.concatenate([request.first for request in requests]),
            np.concatenate([timestep.reward for timestep in timesteps]),
            tree.map_structure(lambda *leaves: np.concatenate(leaves), *(t.observation for t in timesteps)),
        )
        ends = np.cumsum([len(request.slots) for request in requests])
        rows = [slice(end - len(request.slots), end) for request, end in zip(requests, ends, strict=True)]
        return [(Acted(*jax.tree.map(lambda leaf, mine=mine: leaf[mine], tuple(acted))), version) for mine in rows]

"""The inference server: a node that applies the policy for actors, which only step environments."""

import contextlib
import dataclasses
import math
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import dm_env
import jax
import numpy as np
import tree

from acme_ext import specs
from acme_ext.acting.batching import Batcher
from acme_ext.acting.inference import Acted, slot_keys
from acme_ext.acting.remote import RemoteVariables, Reply, renewal_s
from acme_ext.acting.slots import SlotCore, bucket_sizes
from acme_ext.data.format import FolderWriter
from acme_ext.data.recorder import Recorder
from acme_ext.launch.engines.program.nodes.reports import UNWRITTEN, Reporter, StopWaitingError, enter, waiting
from acme_ext.launch.hosts import launchpad as lp
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.types import FIRST, Array, EnvironmentSpec, Tree
from acme_ext.utils.calls import Call, CallServer

_HELD_S = 0.01  # between checks of whether the replay has taken rows
_LAST_S = 0.5  # time for the replay to take rows after the program is told to stop
_REPORT_S = 0.1
_LOG_EVERY_S = 1.0
_WAIT_S = 0.002  # an accelerator waits this long for more requests; a CPU doesn't, as its time grows with the batch


class _Request(NamedTuple):
    """A call of `act` that waits for its batch."""

    call: Call
    seat: "_Seat"
    run: int  # how often its actor was started before
    tick: int  # how many requests its caller has made since that start
    keys: Array | None  # [K] random keys, if a new timeline begins
    steps: int  # environment steps that the run has taken
    first: np.ndarray  # [K] bool
    timestep: dm_env.TimeStep
    with_state: bool  # whether the reply must have the recurrent state from before the step


@dataclasses.dataclass
class _Seat:
    """The state of one caller, which has all or a part of an actor's environments."""

    actor: int
    envs: np.ndarray  # [K] indices of the actor's environments
    slots: np.ndarray
    ranks: np.ndarray
    writer: Any = None  # writes its experience, if this node does that
    run: int = -1  # how often its actor was started before
    tick: int = -1
    told: tuple[int, int] = (-1, -1)  # the start and the tick of the time step that was written last
    acted: tuple[Acted, int] | None = None  # the answer to the latest request, and the version of the parameters
    restarted: bool = False  # whether that answer began a new timeline
    waits: bool = False  # whether a request waits for a batch
    sent: int = 0  # the writer's row count when the replay had last taken enough rows

    @property
    def keeps_state(self) -> bool:
        """Whether the writer stores recurrent states."""
        return getattr(self.writer, "keeps_state", False)


@dataclasses.dataclass
class _Held:
    """A call that waits until the replay has taken earlier rows."""

    call: Call
    seat: _Seat
    key: tuple  # identifies the call if it is repeated
    pending: int  # rows of its seat that the replay may not have taken yet
    go_on: Callable[[Call], None]
    since: float = dataclasses.field(default_factory=time.monotonic)


class InferenceNode:
    """Applies the policy for actors to batches of their requests, and keeps their recurrent states.

    Actors send requests to this node's own port, see `utils.calls`. One thread receives and answers them. If a request
    is repeated because its answer was lost, it is answered from memory. If an actor or this node was restarted, the
    actor's callers begin a new timeline, with new recurrent states, random keys and sequences. Parameters change only
    between batches.

    If the actors don't write the `experience`, this node writes it to the replay. Observations then cross the network
    once, and recurrent states never. When a replay shard is full, answers to the actors that write to it are delayed.

    Args:
        experiment: the experiment that the program runs.
        spec: the environment's spec.
        actors: number of actors in the program.
        replays: the replay's tables, one for each shard; actors use them in turn.
        learner: the learner's client.
        coordinator: the coordinator's client.
        index: the inference server's number.
        servers: number of inference servers. This one serves the actors with `actor % servers == index`.
        callers: callers per actor, each with an equal part of its environments.
        experience: whether the actors write the experience; if not, this node does.
        token: the secret that actors must send, see `utils.calls.CallServer`.
        address: this node's Launchpad address; the node listens on its host. None for this machine only.
        record: `(spec, name) -> writer` for recording complete episodes, if this node writes the experience; None to
            record nothing.
    """

    def __init__(
        self,
        experiment: Experiment,
        spec: EnvironmentSpec,
        actors: int,
        replays: Sequence[Any],
        learner: Any,
        coordinator: Any,
        *,
        index: int = 0,
        servers: int = 1,
        callers: int,
        experience: bool,
        token: bytes,
        address: Any = None,
        record: Callable[[EnvironmentSpec, str], FolderWriter] | None = None,
    ):
        node = enter(coordinator, "inference", None if servers == 1 else index)
        self._reporter = Reporter(coordinator, node)
        self._experiment, self._index = experiment, index
        # A memory belongs to these environments. A run that is resumed with another number of servers starts new ones.
        self._kept_as = node.key if servers == 1 else f"{node.key} of {servers}"
        example = specs.zeros(spec.observations, 1)
        self._expected = [(leaf.shape[1:], leaf.dtype) for leaf in tree.flatten(example)]
        agent, num_envs = experiment.make_agent(spec), experiment.num_envs
        served = range(index, actors, servers)
        slots = len(served) * num_envs
        self._core = SlotCore(agent.policy, slots, bucket_sizes(slots))
        on_wait = waiting(self._reporter, lambda: "waiting for the learner's first parameters")
        self._variables = RemoteVariables(learner.variables, period_s=renewal_s(agent.replay.fifo), on_wait=on_wait)
        with contextlib.suppress(StopWaitingError):  # then no actor will send requests
            _, params = self._variables.held()
            self._core.warm_up(params, example)
        self._reporter.kept(self._core, self._kept_as)

        part = agent.replay.split(max(1, len(replays)))
        self._unconfirmed = part.unconfirmed
        recorded = record(spec, f"inference-{index}") if record is not None and not experience else None
        self._recorded, self._written = recorded, threading.Event()
        self._stopping_since: float | None = None
        self._reporter.counts[UNWRITTEN] = int(recorded is not None)
        ranks = experiment.ranks(actors)
        self._seats: dict[tuple[int, int], _Seat] = {}
        for place, actor in enumerate(served):
            for caller, mine in enumerate(np.array_split(np.arange(num_envs, dtype=np.int32), callers)):
                writer = None
                if not experience:
                    writer = part.writer(replays[actor % len(replays)].sink(), len(mine))
                    writer = writer if recorded is None else Recorder(recorded, writer)
                own = ranks[actor * num_envs + mine]
                self._seats[actor, caller] = _Seat(actor, mine, place * num_envs + mine, own, writer)
        self._ended = threading.Event()
        self._replays = replays
        self._held: dict[int, _Held] = {}  # by the seat's id
        accelerated = jax.default_backend() != "cpu"
        self._batcher: Batcher[_Request] = Batcher(most=slots, wait_s=_WAIT_S if accelerated else 0.0)
        self._calls = CallServer(token, "localhost" if address is None else address.resolve().rpartition(":")[0])
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="inference", daemon=True)
        self._thread.start()

    def port(self) -> int:
        """Returns the port for the actors' requests; see `acting.remote.RemoteInference`."""
        return self._calls.port

    def fill(self) -> tuple[int, int]:
        """Returns the number of environment steps in all batches so far, without and with padding."""
        return self._core.rows, self._core.padded_rows

    def compilations(self) -> int:
        """Returns the number of compiled programs."""
        return self._core.compilations()

    def run(self) -> None:
        """Serves until the program ends."""
        logged = -math.inf
        try:
            while not lp.wait_for_stop(_REPORT_S):
                if self._error is not None:
                    raise self._error
                if self._reporter.orders.stop:
                    self._calls.wake()  # to write what was recorded
                if self._written.is_set():
                    self._reporter.counts[UNWRITTEN] = 0
                self._reporter.report(self._calls.problem or "serving")
                rows, padded = self.fill()
                if time.monotonic() - logged > _LOG_EVERY_S and rows:
                    logged = time.monotonic()
                    row = {"inference_steps": rows, "inference_fill": rows / padded}
                    self._reporter.row("inference", {"server": self._index, **row})
                    for held in list(self._held.values())[:1]:
                        replay = self._replays[held.seat.actor % len(self._replays)]
                        why = f"waiting for the replay to take its rows: {replay.describe()}"
                        self._reporter.report(why, now=True)
        except BaseException:
            try:
                self.end()
            finally:  # the program waits for what is not written
                self._reporter.counts[UNWRITTEN] = 0
                self._reporter.report("has ended", now=True)
            raise
        self.end()

    def end(self) -> None:
        """Stops serving; callers that wait are told that the program ends."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._calls.wake()
        self._thread.join()
        self._calls.close()
        self._variables.close()
        for seat in self._seats.values():
            if seat.writer is not None:
                seat.writer.close()

    def _serve(self) -> None:
        try:
            while not self._ended.is_set():
                due_s = self._batcher.due_s()
                if self._held:
                    due_s = _HELD_S if due_s is None else min(due_s, _HELD_S)
                for call in self._calls.take(due_s):
                    self._receive(call)
                self._release()
                self._write_recorded()
                while self._batcher.due_s() == 0.0:
                    self._run_batch()
                self._reporter.keep(self._core, self._kept_as)  # in this thread, which updates the memory in place
            for request in self._batcher.take():
                request.call.answer(None)
            for held in self._held.values():
                held.call.answer(None)
        except BaseException as error:
            self._error = error

    def _release(self) -> None:
        """Continues the held calls whose rows the replay has taken.

        A call waits only for its own rows. Otherwise there could be a deadlock: one shard is full and waits for the
        learner, and the learner waits for rows of another shard.
        """
        for who, held in list(self._held.items()):
            if self._has_sent(held.seat, held.pending):
                del self._held[who]
                held.go_on(held.call)
            elif self._reporter.orders.stop and time.monotonic() - held.since > _LAST_S:
                del self._held[who]
                held.call.answer(None)  # rows that the replay doesn't take in time are dropped

    def _write_recorded(self) -> None:
        """Writes the recorded episodes, once the program stops and its actors have left or their time is over."""
        if self._recorded is None or self._written.is_set() or not self._reporter.orders.stop:
            return
        now = time.monotonic()
        self._stopping_since = self._stopping_since or now
        if now - self._stopping_since > _LAST_S or all(seat.acted is None for seat in self._seats.values()):
            self._recorded.flush()
            self._written.set()

    def _receive(self, call: Call) -> None:
        """Answers a call, or queues it for a batch."""
        try:
            actor, caller, run, method, *rest = call.arguments
            seat, key = self._seats[actor, caller], (run, method, *rest[:1]) if method == "act" else (run, method)
            # An older request of this seat comes from an earlier start, or is this call repeated; its caller is gone.
            if seat.waits:
                self._run_batch()
            if (held := self._held.get(id(seat))) is not None:
                if held.key == key:
                    held.call = call
                    return
                if run < held.key[0]:
                    raise ValueError(f"a request of start {run} comes after one of start {held.key[0]}")
                del self._held[id(seat)]
                held.call.answer(None)
            self._METHODS[method](self, call, key, seat, run, *rest)
        except StopWaitingError:
            call.answer(None)
        except Exception:
            call.fail(traceback.format_exc())

    def _act(
        self,
        call: Call,
        key: tuple,
        seat: _Seat,
        run: int,
        tick: int,
        steps: int,
        timestep: Sequence[Any],
        with_state: bool,
    ) -> None:
        newest = dm_env.TimeStep(*timestep)
        self._check(newest, len(seat.slots))
        if seat.acted is not None and (run, tick) == (seat.run, seat.tick):
            call.answer(self._reply(seat, with_state))
            return
        if (run, tick) < (seat.run, seat.tick):
            raise ValueError(f"request {tick} of start {run} comes after {seat.tick} of start {seat.run}")
        goes_on = seat.acted is not None and (run, tick) == (seat.run, seat.tick + 1)
        if seat.writer is not None and seat.told != (run, tick):  # a call that was answered with None is repeated
            self._tell(seat, newest, goes_on)
            seat.told = (run, tick)
        first, keys = newest.step_type == FIRST, None
        if not goes_on:
            of_all = slot_keys(self._experiment.actor_key(seat.actor, run), self._experiment.num_envs)
            keys = of_all[seat.envs]
            first = np.ones_like(first)

        def go_on(call: Call) -> None:
            seat.waits = True
            request = _Request(call, seat, run, tick, keys, steps, first, newest, with_state)
            self._batcher.add(id(seat), len(seat.slots), request)

        self._when_sent(_Held(call, seat, key, self._unconfirmed(len(seat.slots)), go_on))

    def _leave(self, call: Call, key: tuple, seat: _Seat, run: int, timestep: Sequence[Any] | None) -> None:
        if seat.writer is not None and seat.acted is not None and run == seat.run:
            if timestep is not None:
                self._tell(seat, dm_env.TimeStep(*timestep), goes_on=True)
            seat.acted = None
            seat.writer.flush()
        self._when_sent(_Held(call, seat, key, 0, lambda call: call.answer(None)))

    _METHODS: ClassVar[dict[str, Callable[..., None]]] = {"act": _act, "leave": _leave}

    def _when_sent(self, held: _Held) -> None:
        """Continues with a call as soon as the replay has taken enough rows of its seat."""
        if self._has_sent(held.seat, held.pending):
            held.go_on(held.call)
        else:
            self._held[id(held.seat)] = held

    def _has_sent(self, seat: _Seat, pending: int) -> bool:
        writer = seat.writer
        if writer is None or (pending and writer.inserted == seat.sent):
            return True
        if not writer.has_sent(pending):
            return False
        seat.sent = writer.inserted
        return True

    def _tell(self, seat: _Seat, newest: dm_env.TimeStep, goes_on: bool) -> None:
        """Adds the results of a seat's latest actions to its writer."""
        if not goes_on or seat.acted is None:
            seat.writer.add_first(newest)
            return
        acted, _ = seat.acted
        kept = {"state": acted.state} if seat.keeps_state else {}
        seat.writer.add(acted.action, newest, acted.extras, **kept)

    def _check(self, timestep: dm_env.TimeStep, count: int) -> None:
        """Raises ValueError if a timestep doesn't fit the seat's environments; it would make the whole batch fail."""
        found = [(leaf.shape[1:], leaf.dtype) for leaf in tree.flatten(timestep.observation)]
        if found != self._expected or any(len(leaf) != count for leaf in tree.flatten(timestep)):
            raise ValueError(f"observations of {count} are {found} where {self._expected} was expected")

    def _run_batch(self) -> None:
        """Answers the requests that have waited longest, up to the size of a batch."""
        batch = self._batcher.take()
        for request in batch:
            request.seat.waits = False
        try:
            acted, version = self._apply(batch)
        except StopWaitingError:
            for request in batch:
                request.call.answer(None)
            return
        except Exception:
            for request in batch:
                request.call.fail(traceback.format_exc())
            return
        for request, mine in zip(batch, acted, strict=True):
            seat = request.seat
            seat.run, seat.tick, seat.acted = request.run, request.tick, (mine, version)
            seat.restarted = request.keys is not None
            request.call.answer(self._reply(seat, request.with_state))

    def _reply(self, seat: _Seat, with_state: bool) -> tuple:
        """Returns the reply to the seat's caller, with its latest actions."""
        assert seat.acted is not None
        acted, version = seat.acted
        if seat.writer is not None:
            return tuple(Reply(acted.action, (), (), version, seat.restarted))
        return tuple(Reply(acted.action, acted.extras, acted.state if with_state else (), version, seat.restarted))

    def _apply(self, batch: Sequence[_Request]) -> tuple[list[Acted], int]:
        """Returns the policy's output for each request of a batch, and the version of the parameters."""
        # Read the parameters once, so that the whole batch uses the same ones.
        version, params = self._variables.held()
        for request in batch:
            if request.keys is not None:
                self._core.assign_slots(request.seat.slots, request.keys, request.seat.ranks)
        acted = self._core.step(
            params,
            _joined([request.seat.slots for request in batch]),
            _joined([np.full(len(request.first), request.tick, np.int32) for request in batch]),
            max(request.steps for request in batch),
            _joined([request.first for request in batch]),
            _joined([request.timestep.reward for request in batch]),
            _joined([request.timestep.observation for request in batch]),
            with_state=any(request.with_state or request.seat.keeps_state for request in batch),
        )
        if len(batch) == 1:
            return [acted], version
        ends = np.cumsum([len(request.first) for request in batch])
        rows = [slice(end - len(request.first), end) for request, end in zip(batch, ends, strict=True)]
        return [Acted(*jax.tree.map(lambda leaf, mine=mine: leaf[mine], tuple(acted))) for mine in rows], version


def _joined(trees: Sequence[Tree]) -> Tree:
    return trees[0] if len(trees) == 1 else tree.map_structure(lambda *leaves: np.concatenate(leaves), *trees)

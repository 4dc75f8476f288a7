"""What an actor has from other processes: the learner's parameters, or an inference server's actions."""

import collections
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import dm_env
import jax
import numpy as np

from acme_ext import interfaces
from acme_ext.acting.inference import Acted
from acme_ext.acting.variables import POLICY
from acme_ext.replay.base import Replay
from acme_ext.types import Params, Tree
from acme_ext.utils.calls import Call, CallServer

_LOOK_S = 0.2
_TICK_S = 0.02  # between looks at whether there are newer parameters
_HELD_S = 0.5  # that a caller waits for newer ones, before it is told that there are none
_BURST_S = 0.2  # of its CPU time that a server of parameters may be ahead of its share
_AT_ONCE = 64  # callers to whom parameters are under way
_LONGEST_PAUSE_S = 1.0  # until an actor's newer ones are asked for

Fetch = Callable[[int], tuple[int, Any]]
"""`version held -> (newest version, its pickled parameters as bytes or uint8, or None if there is none newer)`. It may
wait for a newer one for some time.
"""


def renewal_s(replay: Replay) -> float:
    """Returns the least seconds between an actor's questions for newer parameters. What is learned from once, off a
    queue, should be of the newest: a learner of short unrolls makes ten steps and more in a tenth of a second.
    """
    return 0.0 if replay.fifo else 0.1


class RemoteVariables(interfaces.VariableSource):
    """Keeps the policy's parameters fresh by a thread that asks for newer ones, and never goes back to older ones.

    It asks when those that it holds have been taken, so that nothing is sent that nobody uses: at once where they are
    taken often, and halfway to the next time where an actor renews its parameters seldom.

    What goes wrong in the thread is raised by the next `get_variables`: nobody acts for ever on parameters that no
    longer come.

    Args:
        fetch: asks the learner.
        period_s: least seconds between questions.
        on_wait: called a few times a second while `wait_for` waits; may raise to end the wait.
    """

    def __init__(self, fetch: Fetch, *, period_s: float = 0.1, on_wait: Callable[[], None] = lambda: None):
        self._fetch, self._period_s, self._on_wait = fetch, period_s, on_wait
        self._held: tuple[int, Any] = (-1, None)
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._wanted = threading.Event()
        self._wanted.set()
        self._taken = time.monotonic()  # when they were last taken,
        self._interval_s = 0.0  # and how long after the time before
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="variables", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The learner step of the parameters held; -1 before the first."""
        return self._held[0]

    def get_variables(self, names: Sequence[str]) -> list[Params]:
        if list(names) != [POLICY]:
            raise ValueError(f"only {POLICY!r} can be had here, not {names}")
        return [self.held()[1]]

    def held(self) -> tuple[int, Params]:
        """Returns the learner step of the parameters held, and them; waits for the first."""
        self.wait_for(0)
        now = time.monotonic()
        self._interval_s, self._taken = now - self._taken, now
        self._wanted.set()
        return self._held

    def wait_for(self, version: int) -> int:
        """Waits for parameters of learner step `version` or later; returns whose they are."""
        while True:
            if self._error is not None:
                raise RuntimeError("the learner's parameters can't be fetched any more") from self._error
            held, _ = self._held
            if held >= version:
                return held
            self._wanted.set()
            with self._changed:
                self._changed.wait(0.2)
            self._on_wait()

    def close(self) -> None:
        """Ends the thread, and waits a second for an answer that is under way: an interpreter that ends while a thread
        of it is inside of a call aborts the process.
        """
        self._closed.set()
        self._wanted.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            self._closed.wait(self._taken + min(self._interval_s / 2, _LONGEST_PAUSE_S) - time.monotonic())
            if self._closed.is_set():
                return
            asked = time.monotonic()
            self._wanted.clear()
            try:
                version, payload = self._fetch(self._held[0])
                if payload is not None and version > self._held[0]:
                    self._held = (version, self._unpack(payload))
                    with self._changed:
                        self._changed.notify_all()
                else:
                    self._wanted.set()
            except Exception as error:
                self._error = error
                return
            self._closed.wait(max(0.0, self._period_s - (time.monotonic() - asked)))

    @staticmethod
    def _unpack(payload: Any) -> Params:
        return jax.device_put(pickle.loads(payload))


class VariableServer:
    """The other side: gives a learner's parameters to many callers of `fetch`, by a thread of its own.

    A version is copied from the device and pickled once for all, and not by the learner's thread. A caller that holds
    the newest waits for a newer one, for half a second at most. All callers together cost a share of a core: where
    they would cost more, each has its answers as often as that allows, and those that have waited longest come first.

    Args:
        source: the learner.
        version: its step now.
        token: that callers show, see `utils.calls.CallServer`.
        host: the address at which it listens.
        share: of a core that it may use.
    """

    def __init__(
        self,
        source: interfaces.VariableSource,
        version: Callable[[], int],
        token: bytes,
        host: str = "localhost",
        *,
        share: float = 0.25,
    ):
        self._source, self._version, self._share = source, version, share
        self._pickled: tuple[int, Any] = (-1, None)
        self._calls = CallServer(token, host, awake_s=0.0)
        self._waiting: collections.deque[tuple[float, Call]] = collections.deque()
        self._credit_s, self._at, self._used = _BURST_S, 0.0, 0.0  # what may be used, as of when, and what was then
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="variables", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens; a call's one argument is the version that is held, and its answer that of a `Fetch`."""
        return self._calls.port

    def close(self) -> None:
        """Answers no more."""
        if not self._closed.is_set():
            self._closed.set()
            self._calls.wake()
            self._thread.join()
            self._calls.close()

    def _serve(self) -> None:
        self._at, self._used = time.monotonic(), time.thread_time()
        while not self._closed.is_set():
            for call in self._calls.take(_TICK_S if self._waiting else None):
                self._waiting.append((time.monotonic(), call))
            for _ in range(len(self._waiting)):
                if not self._may_answer():
                    break
                since, call = self._waiting.popleft()
                try:
                    if not self._answer(since, call):
                        self._waiting.append((since, call))
                except Exception:
                    call.fail(traceback.format_exc())

    def _may_answer(self) -> bool:
        now, used = time.monotonic(), time.thread_time()
        self._credit_s = min(_BURST_S, self._credit_s + self._share * (now - self._at)) - (used - self._used)
        self._at, self._used = now, used
        # Parameters that are under way to many at once would come late to all of them.
        return self._credit_s > 0 and self._calls.unsent < _AT_ONCE

    def _answer(self, since: float, call: Call) -> bool:
        """Answers a call if it is time to; returns whether it was."""
        (held,) = call.arguments
        version = self._version()
        if version > held:
            if version != self._pickled[0]:
                (params,) = self._source.get_variables([POLICY])
                # As an array it is sent from where it lies, to each of them.
                self._pickled = version, np.frombuffer(pickle.dumps(jax.device_get(params), protocol=5), np.uint8)
            call.answer(self._pickled)
            return True
        if time.monotonic() - since > _HELD_S:
            call.answer((version, None))
            return True
        return False


class Reply(NamedTuple):
    """An inference server's answer."""

    action: np.ndarray  # [K, ...]
    extras: Tree  # [K, ...], or nothing where the server keeps the experience
    state: Tree  # [K, ...] the recurrent state from before, if it was asked for
    version: int  # the learner step of the parameters


class PendingCall(Protocol):
    """A call in two halves; see `utils.calls.RemoteCall`."""

    def begin(self, *arguments: Any) -> None: ...
    def end(self) -> Any: ...


class RemoteInference:
    """An `Inference` whose policy is a server's.

    Every request has a number, so that one which is delivered twice is answered twice and acted on once.

    Args:
        call: of the server: `("act", tick, steps, timestep, with_state) -> Reply`, and `("leave", timestep)`, see
            `leave`. A server that ends answers None.
        with_state: whether the recurrent state from before each action is wanted.
        on_wait: called a few times a second while a server that ends gives no answer; may raise to end the wait.
    """

    def __init__(self, call: PendingCall, *, with_state: bool, on_wait: Callable[[], None] = lambda: None):
        self._call, self._with_state, self._on_wait = call, with_state, on_wait
        self._ticks = 0
        self._begun = False
        self.version = -1
        """The learner step of the parameters that gave the newest actions; -1 before the first."""

    def begin(self, steps: int, timestep: dm_env.TimeStep) -> None:
        """Asks the server; `step` then waits for the answer. The timestep must stay as it is until then."""
        self._begun = True
        self._call.begin("act", self._ticks, steps, tuple(timestep), self._with_state)

    def step(self, steps: int, timestep: dm_env.TimeStep) -> Acted:
        if not self._begun:
            self.begin(steps, timestep)
        while (answer := self._call.end()) is None:
            time.sleep(_LOOK_S)  # the server has been told of the end first
            self._on_wait()
            self.begin(steps, timestep)
        self._begun = False
        reply = Reply(*answer)
        self._ticks += 1
        self.version = reply.version
        return Acted(reply.action, reply.extras, reply.state)

    def leave(self, timestep: dm_env.TimeStep) -> None:
        """Tells the server that there will be no more after the newest timestep; returns when all that it keeps of the
        experience is in the replay.
        """
        heard = self._begun
        if heard:  # nobody wants the answer any more
            self._call.end()
            self._begun, self._ticks = False, self._ticks + 1
        self._call.begin("leave", None if heard else tuple(timestep))
        self._call.end()

    def update(self, wait: bool = False) -> None:
        """Does nothing: the parameters are the server's to renew."""

    def save(self) -> int:
        return self._ticks

    def restore(self, ticks: int) -> None:
        self._ticks = ticks


class RemoteExperience:
    """The writer of an actor whose experience an inference server keeps: that hears of it by being asked for actions.

    Args:
        inference: asks it.
    """

    def __init__(self, inference: RemoteInference):
        self._inference = inference
        self._newest: dm_env.TimeStep | None = None

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        self._newest = timestep

    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = ()) -> None:
        self._newest = next_timestep

    def flush(self) -> None:
        """Has what is unfinished written."""
        if self._newest is not None:
            self._inference.leave(self._newest)

    def wait(self) -> None:
        """Does nothing: what was flushed is there."""

    def close(self) -> None:
        """Does nothing: the server's writer is the server's to close."""

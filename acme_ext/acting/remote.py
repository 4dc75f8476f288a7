"""An actor's access to other processes: to the learner's parameters, or to an inference server's actions."""

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
from acme_ext.types import Params, Tree
from acme_ext.utils.calls import Call, CallServer

_LOOK_S = 0.2
_TICK_S = 0.02  # between checks for newer parameters
_HELD_S = 0.5  # how long a request waits for newer parameters before the answer is that there are none
_BURST_S = 0.2  # CPU time by which a server of parameters may exceed its share for a short time
_AT_ONCE = 64  # callers to which parameters are sent at the same time
_LONGEST_PAUSE_S = 1.0  # longest delay between the use of parameters and the request for newer ones

Fetch = Callable[[int], tuple[int, Any]]
"""`held version -> (newest version, its pickled parameters as bytes or uint8, or None if it is not newer)`. The call
may wait some time for a newer version.
"""


def renewal_s(on_policy: bool) -> float:
    """Returns the minimum seconds between an actor's requests for newer parameters.

    It is 0 for on-policy agents: their data should come from the newest policy, and a learner of short unrolls can make
    ten or more steps in 0.1 s.
    """
    return 0.0 if on_policy else 0.1


class RemoteVariables(interfaces.VariableSource):
    """Holds the policy's parameters, and fetches newer ones in a thread; it never goes back to older ones.

    The thread asks for newer parameters only after the current ones have been used, so that none are sent in vain. If
    an actor updates its parameters often, it asks at once; if rarely, about halfway to the next update.

    An error in the thread is raised by the next `get_variables`, so that no actor keeps using old parameters without
    notice.

    Args:
        fetch: asks the learner.
        period_s: minimum seconds between requests.
        on_wait: called a few times a second while `wait_for` waits; it may raise to end the wait.
    """

    def __init__(self, fetch: Fetch, *, period_s: float = 0.1, on_wait: Callable[[], None] = lambda: None):
        self._fetch, self._period_s, self._on_wait = fetch, period_s, on_wait
        self._held: tuple[int, Any] = (-1, None)
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._wanted = threading.Event()
        self._wanted.set()
        self._taken = time.monotonic()  # when the parameters were last read
        self._interval_s = 0.0  # time between the last two reads
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="variables", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The learner step of the current parameters; -1 before the first."""
        return self._held[0]

    def get_variables(self, names: Sequence[str]) -> list[Params]:
        if list(names) != [POLICY]:
            raise ValueError(f"only {POLICY!r} can be had here, not {names}")
        return [self.held()[1]]

    def held(self) -> tuple[int, Params]:
        """Returns the current parameters with their learner step; waits for the first ones."""
        self.wait_for(0)
        now = time.monotonic()
        self._interval_s, self._taken = now - self._taken, now
        self._wanted.set()
        return self._held

    def wait_for(self, version: int) -> int:
        """Waits for parameters of learner step `version` or later; returns their learner step."""
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
        """Ends the thread, and waits up to a second for a pending answer.

        The wait avoids that the interpreter exits while the thread is inside a call, which would abort the process.
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
    """Serves a learner's parameters to many callers of `fetch`, in its own thread.

    Each version is copied from the device and pickled only once, outside the learner's thread. A caller that has the
    newest version waits for a newer one, for at most half a second. The CPU time for all callers is limited to a share
    of a core. If that is not enough, answers are delayed, and the callers that have waited longest come first.

    Args:
        source: the learner.
        version: a function that returns the learner's current step.
        token: the secret that callers must send, see `utils.calls.CallServer`.
        host: the address to listen on.
        share: the fraction of a CPU core that it may use.
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
        self._credit_s, self._at, self._used = _BURST_S, 0.0, 0.0  # CPU time left, as of when, and used by then
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="variables", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on; a call takes the caller's version, and the answer is the result of a `Fetch`."""
        return self._calls.port

    def close(self) -> None:
        """Stops answering."""
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
        # Sending parameters to too many callers at the same time would delay them for all.
        return self._credit_s > 0 and self._calls.unsent < _AT_ONCE

    def _answer(self, since: float, call: Call) -> bool:
        """Answers a call if there are newer parameters, or if it has waited long enough; returns whether it did."""
        (held,) = call.arguments
        version = self._version()
        if version > held:
            if version != self._pickled[0]:
                (params,) = self._source.get_variables([POLICY])
                # An array can be sent to every caller without copying.
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
    extras: Tree  # [K, ...], or empty if the server writes the experience
    state: Tree  # [K, ...] the recurrent state from before the step, if requested
    version: int  # the learner step of the parameters
    restarted: bool  # whether a new timeline begins, with initial recurrent states


class PendingCall(Protocol):
    """A call that is sent with `begin` and answered with `end`; see `utils.calls.RemoteCall`."""

    def begin(self, *arguments: Any) -> None: ...
    def end(self) -> Any: ...


class RemoteInference:
    """An `Inference` that gets its actions from an inference server.

    Every request has a number, so a request that is delivered twice has an effect only once.

    Args:
        call: calls the server: `("act", tick, steps, timestep, with_state) -> Reply` and `("leave", timestep)`, see
            `leave`. A server that is shutting down answers None.
        with_state: whether replies must have the recurrent state from before each action.
        on_wait: called a few times a second while a server is shutting down; it may raise to end the wait.
    """

    def __init__(self, call: PendingCall, *, with_state: bool, on_wait: Callable[[], None] = lambda: None):
        self._call, self._with_state, self._on_wait = call, with_state, on_wait
        self._ticks = 0
        self._begun = False
        self.version = -1
        """The learner step of the parameters behind the newest actions; -1 before the first."""
        self.restarted = False
        """Whether the newest actions begin a new timeline, because the server was restarted."""

    def begin(self, steps: int, timestep: dm_env.TimeStep) -> None:
        """Sends the request; `step` then waits for the answer. The timestep must not be changed until then."""
        self._begun = True
        self._call.begin("act", self._ticks, steps, tuple(timestep), self._with_state)

    def step(self, steps: int, timestep: dm_env.TimeStep) -> Acted:
        if not self._begun:
            self.begin(steps, timestep)
        while (answer := self._call.end()) is None:
            time.sleep(_LOOK_S)  # the server was told to stop before this node
            self._on_wait()
            self.begin(steps, timestep)
        self._begun = False
        reply = Reply(*answer)
        self.restarted = reply.restarted and self._ticks > 0
        self._ticks += 1
        self.version = reply.version
        return Acted(reply.action, reply.extras, reply.state)

    def leave(self, timestep: dm_env.TimeStep) -> None:
        """Tells the server that the newest timestep is the last one.

        Returns when all experience that the server writes for this actor is in the replay.
        """
        heard = self._begun
        if heard:  # the answer is not needed any more
            self._call.end()
            self._begun, self._ticks = False, self._ticks + 1
        self._call.begin("leave", None if heard else tuple(timestep))
        self._call.end()

    def update(self, wait: bool = False) -> None:
        """Does nothing, because the server updates the parameters."""

    def save(self) -> int:
        return self._ticks

    def restore(self, ticks: int) -> None:
        self._ticks = ticks


class RemoteExperience:
    """The writer of an actor whose experience an inference server writes.

    The server receives the experience with the requests for actions, so this writer only has to end it.

    Args:
        inference: the connection to the server.
    """

    def __init__(self, inference: RemoteInference):
        self._inference = inference
        self._newest: dm_env.TimeStep | None = None

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        self._newest = timestep

    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = ()) -> None:
        self._newest = next_timestep

    def flush(self) -> None:
        """Makes the server write the unfinished experience."""
        if self._newest is not None:
            self._inference.leave(self._newest)

    def wait(self) -> None:
        """Does nothing, because `flush` already waits for the replay."""

    def close(self) -> None:
        """Does nothing, because the server closes its own writer."""

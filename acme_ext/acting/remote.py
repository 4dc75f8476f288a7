"""What an actor has from other processes: the learner's parameters, or an inference server's actions."""

import pickle
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import acme.core
import dm_env
import jax
import numpy as np

from acme_ext.acting.inference import Acted
from acme_ext.acting.variables import POLICY
from acme_ext.types import Params, Tree

_LOOK_S = 0.2

Fetch = Callable[[int], tuple[int, bytes | None]]
"""`version held -> (newest version, its pickled parameters, or None if it is the one held)`."""


class RemoteVariables(acme.core.VariableSource):
    """Keeps the policy's parameters fresh by a thread that asks for newer ones, and never goes back to older ones.

    What goes wrong in the thread is raised by the next `get_variables`: nobody acts for ever on parameters that no
    longer come.

    Args:
        fetch: asks the learner.
        period_s: seconds between questions.
        on_wait: called a few times a second while `wait_for` waits; may raise to end the wait.
    """

    def __init__(self, fetch: Fetch, *, period_s: float = 0.1, on_wait: Callable[[], None] = lambda: None):
        self._fetch, self._period_s, self._on_wait = fetch, period_s, on_wait
        self._held: tuple[int, Any] = (-1, None)
        self._error: Exception | None = None
        self._changed = threading.Condition()
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
        return self._held

    def wait_for(self, version: int) -> int:
        """Waits for parameters of learner step `version` or later; returns whose they are."""
        while True:
            if self._error is not None:
                raise RuntimeError("the learner's parameters can't be had any more") from self._error
            held, _ = self._held
            if held >= version:
                return held
            with self._changed:
                self._changed.wait(0.2)
            self._on_wait()

    def close(self) -> None:
        """Ends the thread, and waits a second for an answer that is under way: an interpreter that ends while a thread
        of it is inside of a call aborts the process.
        """
        self._closed.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._closed.is_set():
            asked = time.monotonic()
            try:
                version, payload = self._fetch(self._held[0])
                if payload is not None and version > self._held[0]:
                    self._held = (version, jax.device_put(pickle.loads(payload)))
                    with self._changed:
                        self._changed.notify_all()
            except Exception as error:
                self._error = error
                return
            self._closed.wait(max(0.0, self._period_s - (time.monotonic() - asked)))


class Publisher:
    """The other side: gives a learner's parameters to whoever asks, pickled once a version.

    Args:
        source: the learner.
        version: its step now.
    """

    def __init__(self, source: acme.core.VariableSource, version: Callable[[], int]):
        self._source, self._version = source, version
        self._pickled: tuple[int, bytes] = (-1, b"")
        self._lock = threading.Lock()

    def fetch(self, held: int) -> tuple[int, bytes | None]:
        """See `Fetch`."""
        with self._lock:
            version = self._version()
            if version != self._pickled[0]:
                (params,) = self._source.get_variables([POLICY])
                self._pickled = (version, pickle.dumps(jax.device_get(params), protocol=5))
            newest, payload = self._pickled
        return newest, payload if newest > held else None


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

"""Parameters from a learner in another process."""

import pickle
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import acme.core
import jax

from acme_ext.acting.variables import POLICY
from acme_ext.types import Params

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
        self.wait_for(0)
        return [self._held[1]]

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
        """Ends the thread, at its next question."""
        self._closed.set()

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

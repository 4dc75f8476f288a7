"""Starts, watches and stops the nodes of a program, on any host; `local` and `ray.driver` say how."""

import abc
import contextlib
import dataclasses
import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.hosts import process_tree
from acme_ext.launch.hosts.fork_server import describe_exit
from acme_ext.launch.hosts.node_process import GRACE_S
from acme_ext.launch.hosts.restart_policy import Next, RestartLimit, RestartPolicy
from acme_ext.launch.roles import SERVERS, NodeId

_SILENCE_S = 10.0  # of waiting, before a message says for what


@dataclasses.dataclass(eq=False)
class Member:
    """A node of a running program."""

    id: NodeId
    node: Any = None  # Launchpad's node; None until the program is made
    runs: bool = False  # whether it was started and has not ended
    again: float | None = None  # when to restart it

    @property
    def group(self) -> str:
        return self.id.role

    @property
    def name(self) -> str:
        return self.id.name


class StopRequestedError(Exception):
    """A stop was requested while no node runs that could save anything."""


class Supervisor(abc.ABC):
    """Starts, watches and stops the nodes of a program, as its `RestartPolicy` decides.

    Args:
        members: all nodes.
        restarts: maximum restarts per hour, of nodes and of the whole program.
        say: shows a message to the user.
        grace_s: see `node_process.Options`.
    """

    notice_s = math.inf
    """Seconds until it is known that a killed node has ended; the program can't restart if it takes longer."""
    refuse_s = math.inf
    """Seconds beyond the grace period within which a killed node must be reported as ended."""

    def __init__(self, members: Sequence[Any], restarts: int, say: Callable[[str], None], grace_s: float = GRACE_S):
        self.members, self._grace_s = list(members), grace_s
        self.policy = RestartPolicy(RestartLimit(restarts), say)
        self._relaunch_at = 0.0

    @abc.abstractmethod
    def launch(self, *, first: bool) -> None:
        """Makes the program and starts its nodes; it may raise StopRequestedError."""

    @abc.abstractmethod
    def start(self, member: Any) -> None:
        """Starts or restarts a node."""

    @abc.abstractmethod
    def signal(self, members: Sequence[Any], number: int) -> None:
        """Sends a signal to those nodes that are running."""

    @abc.abstractmethod
    def poll_events(self) -> None:
        """Handles new events, see `on_event`; returns after a short time even if there are none."""

    @abc.abstractmethod
    def ask(self, coordinator: Any, died: list[str]) -> None:
        """Asks the coordinator to stop the program; see `Coordinator.request_stop`."""

    def run(self) -> int:
        """Runs the program to its end; returns the exit code (0, 1, or 128 + the signal that stopped it)."""
        with contextlib.suppress(StopRequestedError):
            self.launch(first=True)
            self.watch()
            while self.policy.relaunching:
                self.clear()
                with starting_again():
                    self.launch(first=False)
                self.watch()
        self.stop()
        self.policy.sum_up()
        return self.policy.exit_code

    def watch(self) -> None:
        """Waits until the program ends or must restart.

        It ends when it is finished, when it is interrupted, or when a node fails.
        """
        said, asked, policy = False, False, self.policy
        while not policy.ended and not policy.at_once and not policy.relaunching:
            if policy.interrupted and not said:
                said = True
                policy.say("stopping after a last save; Ctrl-C again stops at once.")
            if policy.stopping and not asked:
                asked = True
                self._ask_coordinator()
            self.start_due()
            self.poll_events()

    def stop(self) -> None:
        """Ends the remaining nodes with grace periods: first those that no others connect to, then the servers."""
        policy = self.policy
        policy.ended = True
        stages = [[member for member in self.members if member.group not in SERVERS]]
        stages += [[member for member in self.members if member.group == group] for group in SERVERS]
        for stage in [self.members] if policy.at_once else stages:
            start, killed = time.monotonic(), policy.at_once or not self._grace_s
            self.signal(stage, signal.SIGKILL if killed else process_tree.STOP_NODE)
            while any(member.runs for member in stage):
                waited = time.monotonic() - start
                if not killed and (policy.at_once or waited > self._grace_s):
                    killed = True
                    self.signal(stage, signal.SIGKILL)
                if waited > (0 if policy.at_once else self._grace_s) + self.refuse_s:
                    break
                self.poll_events()

    def clear(self) -> None:
        """Kills all nodes and waits for the time to restart the program."""
        self.signal(self.members, signal.SIGKILL)
        self.settle(lambda member: not member.runs, self.notice_s, "to end")
        for member in self.members:
            member.node = member.again = None
        self.settle(lambda member: time.monotonic() >= self._relaunch_at, math.inf, "to go on")
        self.policy.relaunching = self.policy.ended = False

    def settle(self, settled: Callable[[Any], bool], limit_s: float, what: str) -> None:
        """Waits until `settled` is true for all nodes.

        Raises:
            StopRequestedError: a stop was requested meanwhile.
            RunError: it takes longer than `limit_s`.
        """
        start, silent = time.monotonic(), True
        while True:
            if self.policy.interrupted:
                raise StopRequestedError
            if not (left := [member for member in self.members if not settled(member)]):
                return
            waited = time.monotonic() - start
            names = ", ".join(member.name for member in left)
            if waited > _SILENCE_S and silent:
                silent = False
                self.policy.say(f"waiting for {names} {what}.")
            if waited > limit_s:
                raise RunError(f"gave up after waiting {limit_s:.0f} s for {names} {what}.")
            self.poll_events()

    def start_due(self) -> None:
        """Restarts the nodes that are due; once the program is stopping, only those that others connect to."""
        stopping = self.policy.stopping
        for member in self.members:
            if member.again is not None and (stopping or member.again <= time.monotonic()):
                member.again = None
                if not stopping or member.group in SERVERS:
                    self.start(member)

    def on_event(self, member: Any, event: Iterable) -> None:
        """Handles an event of a node, see `fork_server`."""
        what, *details = event
        if what == "stop":
            self.policy.ended = True
        elif what == "request":
            self.policy.request_stop(signal.SIGTERM)
        elif what == "unanswered":
            self.policy.no_answer()
        elif what == "ended":
            member.runs = False
            code, words = details
            self.on_exit(member, describe_exit(code), words, code=code)

    def on_exit(self, member: Any, why: str, words: Callable[[], str], **how: Any) -> Next:
        """Handles the end of a node, see `RestartPolicy.on_exit`; returns what follows."""
        follows, pause = self.policy.on_exit(member.id, why, words, **how)
        if follows is Next.RELAUNCH:
            self._relaunch_at = time.monotonic() + pause
        elif follows is Next.RESTART:
            member.again = time.monotonic() + pause
        return follows

    def _ask_coordinator(self) -> None:
        """Asks the coordinator to stop the program with a last save; stops the nodes directly if there is none."""
        coordinator = next((member for member in self.members if member.group == "coordinator" and member.runs), None)
        if coordinator is None:
            self.policy.ended = True
            return
        died = [member.name for member in self.members if not member.runs]
        self.ask(coordinator, died)


@contextlib.contextmanager
def starting_again() -> Iterator[None]:
    """Raises RunError in place of UsageError, which would say that the program had not started at all."""
    try:
        yield
    except UsageError as error:
        raise RunError(f"the program could not start again: {error}") from error


def say(text: str) -> None:
    """Shows a message to the user."""
    print(f"acme-ext: {text}", file=sys.stderr, flush=True)

"""The process that runs a program on Ray: it has nodes placed and started, watches them and stops them.

A process that dies is started again in its place, at its addresses. An actor or evaluator whose host is lost is placed
anew. What others dial can't move, for they have its address: its loss, or the death of a process that holds the run's
state, ends the program, which is then started again as a whole from its last checkpoint.
"""

import contextlib
import dataclasses
import math
import os
import pathlib
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from acme_ext.errors import RunError, UsageError
from acme_ext.launch import isolation, processes
from acme_ext.launch.cluster import connection, placement
from acme_ext.launch.cluster.agent import Agent, Place, Visit, exists
from acme_ext.launch.cluster.nursery import Order, stop_program
from acme_ext.launch.forks import GRACE_S, RESUMABLE, Options, bind, how

WRITERS = ("replay", "coordinator", "learner")
"""Groups of nodes that write to the run directory."""

_LOOK_S = 0.1
_SILENCE_S = 10.0  # of waiting, after which it is said what for
_ARRIVE_S = 120.0  # for an agent to answer where it is, once it has a place
_START_S = 180.0  # for a node's process to begin: libraries are imported on its host first
_NOTICE_S = 90.0  # for Ray to notice that a host is lost
_SAME_LOSS_S = 60.0  # in which agents that are lost were on one host that is
_REFUSE_S = 5.0  # beyond the grace, for a killed node's end to be heard of


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be run, as the launcher hands it over.

    Attributes:
        load: makes the program; called with whether it is the first time.
        groups: of the program, with their numbers of nodes.
        resources: that each node of a group asks for.
        servers: groups of nodes that others dial, in the order in which they are stopped, after all others.
        directory: the run's.
        address: of the cluster; None for a Ray of the run's own.
        folder: for such a Ray's files.
        code: the folder that travels to a cluster's hosts.
        path: see `launch.cluster.agent.Visit`.
        restarts: times, in all, that nodes which have died are started again, or the program as a whole.
        wait_s: see `launch.cluster.placement.reserve`.
    """

    load: Callable[[bool], Any]
    groups: Mapping[str, int]
    resources: Mapping[str, Mapping[str, float]]
    servers: tuple[str, ...]
    directory: pathlib.Path
    address: str | None
    folder: pathlib.Path
    code: pathlib.Path
    path: Sequence[str]
    restarts: int = 0
    wait_s: float | None = None


@dataclasses.dataclass
class _Node:
    """A node, and the agent that stands for it."""

    group: str
    name: str
    number: int  # of its bundle
    agent: Any = None
    place: Place | None = None  # None: the agent has not arrived
    node: Any = None  # Launchpad's
    question: Any = None  # that its agent has not answered yet
    heard: int = 0  # events of this agent
    runs: bool = False  # has been ordered, and has not ended
    started: bool = False  # has a process
    since: float = 0.0  # of the latest order


class _InterruptedError(Exception):
    """The program is to stop where nothing of it runs that could save anything."""


class Driver:
    """See the module. Ray is connected to.

    Args:
        plan: see there.
    """

    def __init__(self, plan: Plan):
        self._plan = plan
        self._run = uuid.uuid4().hex[:12]
        self._nodes = [
            _Node(group, group if count == 1 else f"{group}-{index}", 0)
            for group, count in plan.groups.items()
            for index in range(count)
        ]
        for number, node in enumerate(self._nodes):
            node.number = number
        self._bundles: list[dict[str, float]] = []
        self._group: Any = None
        self._tokens: dict[str, pathlib.Path] = {}  # of agents that are on their way
        self._lost_at: dict[str, float] = {}  # of hosts
        self._restarts = self._relaunches = 0
        self._interrupted = 0  # the signal
        self._at_once = False
        self._asked_to_end = self._failed = self._to_relaunch = False
        self._died: list[str] = []

    def run(self) -> int:
        """Runs the program to its end; returns the exit code (0, 1, or 128 + a signal that stopped it)."""
        self._reserve()
        try:
            with contextlib.suppress(_InterruptedError):
                self._launch(first=True)
                while self._watch():
                    self._clear()
                    self._launch(first=False)
            self._stop()
        finally:
            for token in self._tokens.values():
                token.unlink(missing_ok=True)
        if self._restarts:
            _say(f"restarts of nodes that had died: {self._restarts - self._relaunches}.")
        if self._relaunches:
            _say(f"restarts of the whole program: {self._relaunches}.")
        if self._failed:
            return 1
        return 128 + self._interrupted if self._interrupted else 0

    # Places ------------------------------------------------------------------------------------------------------

    def _reserve(self) -> None:
        """Reserves a place for every node, or none."""
        import ray

        asked = [self._plan.resources[node.group] for node in self._nodes]
        pin = None if self._is_shared() else ray.util.get_node_ip_address()
        if pin is not None:
            _say(f"the run directory is not shared by all hosts: {', '.join(WRITERS)} run on this one.")
        self._bundles = [
            placement.bundle(resources, pin if node.group in WRITERS else None)
            for node, resources in zip(self._nodes, asked, strict=True)
        ]
        names = [node.name for node in self._nodes]
        self._group = placement.reserve(names, self._bundles, self._plan.wait_s, _say)
        if (there := ray.cluster_resources().get("GPU", 0)) and not any("GPU" in resources for resources in asked):
            _say(f"the cluster has {there:g} GPUs, and no node asks for one (as --resources learner=GPU:1 would).")

    def _is_shared(self) -> bool:
        """Whether every host sees the run directory of this one."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = ray.get_runtime_context().get_node_id()
        others = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
        if not others:
            return True
        token = self._make_token("driver")
        look = ray.remote(num_cpus=0)(exists)
        answers = [
            look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(host, soft=False)).remote(str(token))
            for host in others
        ]
        ready, waiting = ray.wait(answers, num_returns=len(answers), timeout=_ARRIVE_S)
        self._tokens.pop("driver").unlink()
        return not waiting and all(ray.get(ready))

    def _make_token(self, name: str) -> pathlib.Path:
        """Makes a file beside the run directory, by which a host knows that it is the same there."""
        folder = self._plan.directory.parent
        folder.mkdir(parents=True, exist_ok=True)
        token = self._tokens[name] = folder / f".acme-ext-{self._run}-{name}"
        token.touch()
        return token

    def _send(self, node: _Node) -> None:
        """Sends an agent for a node to its place, or to the one that Ray finds in its stead when that is lost."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=node.number)
        asked = self._plan.resources[node.group]
        # Orders are taken in their order, by one thread; another has the question for events.
        remote = ray.remote(concurrency_groups={"events": 1}, max_restarts=0)(Agent)
        node.agent = remote.options(scheduling_strategy=where, **placement.actor_options(asked)).remote()
        node.place, node.heard, node.since, node.started = None, 0, time.monotonic(), False
        # gRPC takes an empty value to mean that there is no proxy, before it looks at the variables of others.
        environment = {"grpc_proxy": "", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")}
        token = self._make_token(node.name)
        node.question = node.agent.place.remote(Visit(self._run, self._plan.path, str(token), environment))

    def _arrive(self, node: _Node, place: Place) -> None:
        if (token := self._tokens.pop(node.name, None)) is not None:
            token.unlink()
        if node.group in WRITERS and not place.shared:
            raise UsageError(
                f"{node.name} was placed on {place.ip}, where {self._plan.directory} is not the same folder as here: "
                "choose a run directory that all hosts share."
            )
        if place.niceness > 0 and all(other.place is None or other.place.host != place.host for other in self._nodes):
            _say(f"nodes run at niceness {place.niceness} on {place.ip}; start Ray with RAY_worker_niceness=0 there.")
        node.place = place

    # Starting ----------------------------------------------------------------------------------------------------

    def _launch(self, *, first: bool) -> None:
        """Starts the program, once every node has an agent in its place and an address."""
        for node in self._nodes:
            if node.agent is None:
                self._send(node)
        program = self._plan.load(True) if first else None
        if first:
            # From here on a wish to stop is granted in good order.
            for number in (*processes.STOP_SIGNALS, *processes.WISHES.values()):
                signal.signal(number, self._on_wish)
        self._settle(lambda node: node.place is not None, _ARRIVE_S, "to be placed", self._send_again)
        if program is None:
            program = self._plan.load(False)  # by now nobody holds the run directory
        launched = [(group, node) for group, nodes in program.groups.items() for node in nodes]
        assert [group for group, _ in launched] == [node.group for node in self._nodes]
        for ours, (_, node) in zip(self._nodes, launched, strict=True):
            ours.node = node
        bind(program, stop_program, bind_addresses=self._bind_addresses())
        for node in self._nodes:
            self._start(node)

    def _bind_addresses(self) -> Callable[[Any], None]:
        """Returns what gives a node addresses with ports that its agent has reserved."""
        agents = {id(node.node): node for node in self._nodes}
        answers = {
            key: node.agent.reserve.remote(len(node.node.addresses))
            for key, node in agents.items()
            if node.node.addresses
        }
        ports = dict(zip(answers, self._answers(list(answers.values())), strict=True))

        def bind_addresses(node: Any) -> None:
            place = agents[id(node)].place
            for address, port in zip(node.addresses, ports.get(id(node), ()), strict=True):
                address.bind(_fixed(f"{place.ip}:{port}"))

        return bind_addresses

    def _answers(self, questions: list[Any]) -> list[Any]:
        import ray

        try:
            return ray.get(questions, timeout=_ARRIVE_S)
        except ray.exceptions.RayError as error:
            raise RunError(f"a host was lost while the program was started ({type(error).__name__}).") from error

    def _start(self, node: _Node) -> None:
        import cloudpickle

        assert node.place is not None
        folder = self._plan.directory / "logs" if node.place.shared else node.place.scratch
        resources = self._plan.resources
        options = Options(
            folder / "nodes",
            accelerated=tuple(group for group, asked in resources.items() if asked.get("GPU", 0) > 0),
            threads={group: max(1, math.floor(resources[group].get("CPU", 1))) for group in ("actor", "evaluator")},
        )
        columns, environment = 0, {}
        if node.group == "coordinator" and sys.stderr.isatty():
            with contextlib.suppress(OSError):
                columns, environment = os.get_terminal_size(2).columns or 80, {"TERM": os.environ.get("TERM")}
        order = Order(cloudpickle.dumps(node.node), node.group, node.name, options, environment, columns)
        node.agent.start.remote(order)
        node.runs, node.started, node.since = True, False, time.monotonic()

    # Watching ----------------------------------------------------------------------------------------------------

    def _watch(self) -> bool:
        """Waits until the program ends, by itself or because somebody interrupts it or a node fails; returns whether
        it is to be started again.
        """
        said = asked = False
        while not self._asked_to_end and not self._at_once and not self._to_relaunch:
            if self._interrupted and not said:
                said = True
                _say("stopping after a last save; Ctrl-C again stops at once.")
            if (self._interrupted or self._failed) and not asked:
                asked = True
                self._ask_coordinator()
            self._take_events(self._look_at_loss)
            self._look_at_orders()
        return self._to_relaunch and not self._interrupted

    def _take_events(self, lost: Callable[[_Node, str], None]) -> None:
        """Takes what agents have to tell, within a moment; `lost` is called for those that can't tell any more."""
        for node, (what, *details) in self._events():
            if what == "said":
                with contextlib.suppress(OSError):
                    os.write(2, details[0])
            elif what == "arrived":
                self._arrive(node, details[0])
                if node.node is not None and not self._to_relaunch and not self._asked_to_end:
                    self._start(node)  # it has moved
            elif what == "started":
                node.started = True
            elif what in ("stop", "unanswered"):  # there is no coordinator to save anything
                self._asked_to_end = True
            elif what == "ended":
                node.runs = False
                code, words = details
                self._look_at(node, how(code), words, code=code)
            elif what == "lost":
                self._give_up(node)
                lost(node, details[0])

    def _events(self) -> Iterator[tuple[_Node, tuple]]:
        """Gives what agents have to tell, within a moment."""
        import ray

        asking = [node for node in self._nodes if node.agent is not None]
        for node in asking:
            if node.question is None:
                node.question = node.agent.events.options(concurrency_group="events").remote(node.heard)
        if not asking:
            time.sleep(_LOOK_S)
            return
        ready, _ = ray.wait([node.question for node in asking], timeout=_LOOK_S)
        for node in asking:
            if node.question not in ready:
                continue
            question, node.question = node.question, None
            try:
                answer = ray.get(question)
            except ray.exceptions.ActorUnavailableError:
                if node.place is None:
                    yield node, ("lost", ".")
                continue  # it is asked again
            except ray.exceptions.RayError as error:
                yield node, ("lost", f": {_first_line(error)}")
                continue
            if isinstance(answer, Place):
                yield node, ("arrived", answer)
                continue
            node.heard += len(answer)
            for event in answer:
                yield node, event

    def _give_up(self, node: _Node) -> None:
        """Lets go of an agent, if there is still one."""
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(node.agent)
        node.agent = node.question = None
        node.runs = False
        if (token := self._tokens.pop(node.name, None)) is not None:
            token.unlink(missing_ok=True)

    def _look_at_loss(self, node: _Node, words: str) -> None:
        self._look_at(node, "was lost, with its host or what stood for it there", words, gone=True)

    def _send_again(self, node: _Node, words: str) -> None:
        """Sends an agent for a node whose agent was lost before anything was started."""
        if not self._may_restart(node, gone=True):
            raise RunError(f"{node.name} could not be placed{words}")
        _say(f"{node.name} was lost before it started, and is placed anew.")
        self._send(node)

    def _look_at(self, node: _Node, why: str, words: str, *, code: int = 1, gone: bool = False) -> None:
        """Decides what follows from a node's end."""
        dialled = node.group in self._plan.servers
        if self._asked_to_end or self._to_relaunch or (not dialled and not gone and code == 0):
            return
        if self._interrupted or self._failed:
            self._died.append(node.name)
            self._asked_to_end = dialled and code != 0  # nobody is there to save anything
            return
        lasting = dialled and (gone or node.group not in RESUMABLE)
        name = node.name if node.place is None else f"{node.name} on {node.place.ip}"
        if not self._may_restart(node, gone):
            self._failed = True
            self._died.append(node.name)
            _say(f"{name} {why}{words}")
            self._asked_to_end = lasting
        elif lasting:
            self._relaunches += 1
            self._to_relaunch = True
            _say(f"{name} {why}{words}")
            _say("the program is started again from its last checkpoint.")
        elif gone:
            _say(f"{name} {why}, and is placed anew.")
            self._send(node)
        else:
            _say(f"{name} {why} and is started again.")
            self._start(node)

    def _may_restart(self, node: _Node, gone: bool) -> bool:
        """Whether one more start is allowed; all that was lost with one host counts once."""
        now, host = time.monotonic(), node.place.host if node.place is not None else ""
        if gone and now - self._lost_at.get(host, -math.inf) < _SAME_LOSS_S:
            return True
        if self._restarts >= self._plan.restarts:
            return False
        self._restarts += 1
        if gone:
            self._lost_at[host] = now
        return True

    def _look_at_orders(self) -> None:
        """Speaks of a node that waits for its place, and gives up one whose host doesn't start it."""
        for node in self._nodes:
            waited = time.monotonic() - node.since
            if node.agent is not None and node.place is None and waited > _SILENCE_S:
                node.since = math.inf
                _say(f"{node.name} waits for {placement.say(self._plan.resources[node.group])} on the cluster.")
            elif node.runs and not node.started and waited > _START_S:
                self._give_up(node)
                self._look_at(node, f"was not started in {_START_S:.0f} s", ".", gone=True)

    # Stopping ----------------------------------------------------------------------------------------------------

    def _ask_coordinator(self) -> None:
        """Has the program stop itself, with a last save; without a coordinator the nodes are stopped as they are."""
        node = next((node for node in self._nodes if node.group == "coordinator" and node.runs), None)
        if node is None:
            self._asked_to_end = True
            return
        gone = [other.name for other in self._nodes if not other.runs]
        node.agent.ask.remote(node.node.courier_address.resolve(), sorted({*self._died, *gone}))

    def _clear(self) -> None:
        """Ends what still runs, at once, so that the program can be started again."""
        self._signal(self._nodes, signal.SIGKILL)
        self._settle(lambda node: not node.runs, _NOTICE_S, "to end", lambda node, words: None)
        for node in self._nodes:
            node.node = None
        self._to_relaunch = False

    def _settle(
        self, settled: Callable[[_Node], bool], limit_s: float, what: str, lost: Callable[[_Node, str], None]
    ) -> None:
        """Waits until something is so for all nodes."""
        start, silent = time.monotonic(), True
        while left := [node for node in self._nodes if not settled(node)]:
            if self._interrupted:
                raise _InterruptedError
            waited = time.monotonic() - start
            names = ", ".join(node.name for node in left)
            if waited > _SILENCE_S and silent:
                silent = False
                _say(f"waiting for {names} {what}.")
            if waited > limit_s:
                raise RunError(f"waited {limit_s:.0f} s in vain for {names} {what}.")
            self._take_events(lost)

    def _stop(self) -> None:
        """Ends what still runs: those that nobody dials first, then the servers, each with some grace."""
        self._asked_to_end = True
        stages = [[node for node in self._nodes if node.group not in self._plan.servers]]
        stages += [[node for node in self._nodes if node.group == group] for group in self._plan.servers]
        if self._at_once:
            stages = [self._nodes]
        for stage in stages:
            self._signal(stage, signal.SIGKILL if self._at_once else processes.STOP_NODE)
            start, killed = time.monotonic(), self._at_once
            while any(node.runs for node in stage):
                waited = time.monotonic() - start
                if not killed and (self._at_once or waited > GRACE_S):
                    killed = True
                    self._signal(stage, signal.SIGKILL)
                if waited > (0 if self._at_once else GRACE_S) + _REFUSE_S:
                    break  # they end when their agents do
                self._take_events(lambda node, words: None)

    def _signal(self, nodes: Sequence[_Node], number: int) -> None:
        for node in nodes:
            if node.runs:
                node.agent.signal.remote(int(number))

    def _on_wish(self, number: int, frame: Any) -> None:
        stop = {wish: stop for stop, wish in processes.WISHES.items()}.get(number, number)
        if not self._interrupted:
            self._interrupted = stop
        elif stop == signal.SIGINT:
            self._at_once = True


def _fixed(address: str) -> Any:
    from launchpad import address as lp_address

    class Fixed(lp_address.AbstractAddressBuilder):
        def build(self) -> str:
            return address

    return Fixed()


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def _say(text: str) -> None:
    print(f"acme-ext: {text}", file=sys.stderr, flush=True)


def main(descriptor: int, keeper: int) -> int:
    """Runs what `launch.distributed` left in an open file; the entry of the driver's process."""
    import cloudpickle

    # The terminal's signals, and those to everybody, are for the launcher, which passes them on; Ray has none of them.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    processes.end_at_a_wish()
    with open(descriptor, "rb") as file:
        private, plan = cloudpickle.load(file)
    try:
        plan = cloudpickle.loads(plan)
        if private and plan.address is None:
            private = isolation.make_private()
        if not processes.tell_when_orphaned(keeper, processes.ORPHANED):
            return 1
        processes.take_in_orphans()
        if plan.address is None:
            names = [group for group, count in plan.groups.items() for _ in range(count)]
            connection.start(plan.folder, placement.total(plan.resources[name] for name in names), private=private)
        else:
            connection.connect(plan.address, plan.code, plan.directory)
        signal.signal(processes.ORPHANED, processes.abandon)
        code = Driver(plan).run()
        if plan.address is not None:
            import ray

            ray.shutdown()
        return code
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1

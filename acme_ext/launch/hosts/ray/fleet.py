"""The proxies of a program on Ray, one per node: sends them to their hosts, polls their events and commands them."""

import contextlib
import dataclasses
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.hosts import supervisor
from acme_ext.launch.hosts.node_process import GRACE_S, Options, bind
from acme_ext.launch.hosts.ray import placement
from acme_ext.launch.hosts.ray.host_server import StartCommand
from acme_ext.launch.hosts.ray.proxy import HostContext, NodeProxy, Place
from acme_ext.launch.roles import nodes_of, role_of
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import files

ANSWER_S = 120.0
"""Seconds that proxies have to answer."""

_LOOK_S = 0.1


@dataclasses.dataclass(eq=False)
class Member(supervisor.Member):
    """A node and the proxy that represents it; `runs` is true from the command to start it."""

    bundle: int = 0  # index in the placement group
    proxy: Any = None
    place: Place | None = None  # None: the proxy has not started yet
    question: Any = None  # the pending call to its proxy
    heard: int = 0  # number of events received from this proxy
    started: bool = False  # whether it has a process
    since: float = 0.0  # time of the latest command
    moves: bool = False  # whether to restart it on another host
    sent: int = 0  # number of proxies so far


@dataclasses.dataclass(frozen=True)
class Plan:
    """The program to run, as the launcher sends it.

    Attributes:
        run: name of this start of the program.
        make_spec: makes an environment and returns its specs.
        load: makes the program; called with `(first, specs)`, where `first` says whether this is the first call.
        groups: group -> number of nodes.
        resources: group -> resources that each of its nodes requests.
        directory: the run directory.
        address: address of the cluster; None to start a Ray only for the run.
        folder: the folder for the files of such a Ray.
        code: the folder that Ray copies to the hosts of a cluster.
        path: see `launch.hosts.ray.proxy.HostContext`.
        restarts: maximum restarts per hour, of dead nodes and of the whole program.
        wait_s: see `launch.hosts.ray.placement.reserve`.
        runtime_env: Ray's `runtime_env` of the processes on all hosts.
        grace_s: see `launch.hosts.node_process.Options`.
    """

    run: str
    make_spec: Callable[[], EnvironmentSpec]
    load: Callable[[bool, EnvironmentSpec], Any]
    groups: Mapping[str, int]
    resources: Mapping[str, Mapping[str, float]]
    directory: pathlib.Path
    address: str | None
    folder: pathlib.Path
    code: pathlib.Path
    path: Sequence[str]
    restarts: int = 0
    wait_s: float | None = None
    runtime_env: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    grace_s: float = GRACE_S


class Fleet:
    """All proxies of a program; needs a connection to Ray.

    Args:
        plan: the program.
        say: shows a message to the user.
    """

    def __init__(self, plan: Plan, say: Callable[[str], None]):
        self._plan, self._say = plan, say
        self.members = [Member(node, bundle=bundle) for bundle, node in enumerate(nodes_of(plan.groups))]
        self._group: Any = None
        self._tokens: dict[str, pathlib.Path] = {}  # node's name -> token, while its proxy has not started

    # Places ------------------------------------------------------------------------------------------------------

    def reserve(self, wait_s: float | None) -> None:
        """Reserves resources for all nodes or for none; see `launch.hosts.ray.placement.reserve`."""
        import ray

        asked = [self._plan.resources[member.group] for member in self.members]
        here = ray.util.get_node_ip_address()
        groups = [member.group for member in self.members]
        bundles, why = placement.bundles(groups, asked, here, self._is_shared(), placement.resources_of(here))
        if why is not None:
            self._say(why)
        self._group = placement.reserve([member.name for member in self.members], bundles, wait_s, self._say)
        if (there := ray.cluster_resources().get("GPU", 0)) and not any("GPU" in resources for resources in asked):
            self._say(f"the cluster has {there:g} GPUs, and no node asks for one (as --resources learner=GPU:1 would).")

    def send(self, member: Member) -> None:
        """Sends a proxy for a node to its reserved host, or to the host that Ray chooses if that one is lost."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=member.bundle)
        # One thread of the proxy handles the commands, in sequence; another one answers the calls for events.
        lasting: dict[str, Any] = {"concurrency_groups": {"events": 1}, "max_restarts": 0}
        asked = placement.actor_options(self._plan.resources[member.group])
        # The name in Ray's dashboard. It can be reused only some time after its proxy has ended.
        name = dataclasses.replace(member.id, start=member.sent or None).name
        named = {"name": name, "namespace": self._plan.run}
        member.sent += 1
        member.proxy = ray.remote(**lasting)(NodeProxy).options(scheduling_strategy=where, **named, **asked).remote()
        member.place, member.heard, member.since, member.started = None, 0, time.monotonic(), False
        environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")}  # the driver's value, not Ray's
        token = self._make_token(member.name)
        member.question = member.proxy.place.remote(
            HostContext(self._plan.run, self._plan.path, str(token), environment)
        )

    def give_up(self, member: Member) -> None:
        """Ends a proxy, if there is one; its node ends with it."""
        import ray
        from ray.exceptions import RayError

        with contextlib.suppress(RayError):
            ray.kill(member.proxy)
        member.proxy = member.question = member.again = None  # its node can't restart there any more
        member.runs = False
        self._drop_token(member.name)

    def _arrive(self, member: Member, place: Place) -> None:
        self._drop_token(member.name)
        if role_of(member.group).writes and not place.shared:
            raise UsageError(
                f"{member.name} was placed on {place.ip}, where {self._plan.directory} is not the same folder as here: "
                "choose a run directory that all hosts share."
            )
        if place.niceness > os.nice(0) and all(
            other.place is None or other.place.host != place.host for other in self.members
        ):
            self._say(
                f"nodes run at niceness {place.niceness} on {place.ip}: start Ray with RAY_worker_niceness=0 there."
            )
        member.place = place

    def _is_shared(self) -> bool | None:
        """Returns whether all hosts share this host's run directory; None if others may still join, but none has."""
        import ray
        from ray.exceptions import RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = ray.get_runtime_context().get_node_id()
        others = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
        if not others:
            return True if self._plan.address is None else None
        token = self._make_token("driver")
        look = ray.remote(num_cpus=0, max_retries=0)(os.path.exists)
        answers = [
            look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(host, soft=False)).remote(str(token))
            for host in others
        ]
        try:
            return all(ray.get(answers, timeout=ANSWER_S))
        except RayError:
            return False
        finally:
            self._drop_token("driver")

    def _make_token(self, name: str) -> pathlib.Path:
        """Makes a file beside the run directory, which shows other hosts whether they share the directory.

        The launcher removes files that are left over. Raises UsageError if files can't be made there.
        """
        folder = self._plan.directory.parent
        files.make_writable_folder(folder)
        token = self._tokens[name] = folder / f".{self._plan.run}-{name}"
        token.touch()
        return token

    def _drop_token(self, name: str) -> None:
        if (token := self._tokens.pop(name, None)) is not None:
            token.unlink(missing_ok=True)

    # Commands ----------------------------------------------------------------------------------------------------

    def bind(self, program: Any) -> None:
        """Assigns a program's nodes to the proxies, with addresses on ports that the proxies have reserved."""
        import ray
        from ray.exceptions import RayError

        launched = [(group, node) for group, nodes in program.groups.items() for node in nodes]
        assert [group for group, _ in launched] == [member.group for member in self.members]
        for member, (_, node) in zip(self.members, launched, strict=True):
            member.node = node
        dialled = [member for member in self.members if member.node.addresses]
        questions = [member.proxy.reserve.remote(len(member.node.addresses)) for member in dialled]
        try:
            answers = ray.get(questions, timeout=ANSWER_S)
        except RayError as error:
            raise RunError(f"a host was lost while the program was started ({type(error).__name__}).") from error
        found = {
            id(member.node): [f"{member.place.ip}:{port}" for port in ports]
            for member, ports in zip(dialled, answers, strict=True)
            if member.place is not None
        }

        def bind_addresses(node: Any) -> None:
            for address, text in zip(node.addresses, found.get(id(node), ()), strict=True):
                address.bind(_fixed(text))

        bind(program, bind_addresses=bind_addresses)

    def start(self, member: Member) -> None:
        """Starts a node on its proxy's host."""
        import cloudpickle

        assert member.place is not None
        folder = self._plan.directory / "logs" if member.place.shared else member.place.scratch
        asked = self._plan.resources
        options = Options(
            folder / "nodes",
            accelerated=tuple(group for group in asked if "GPU" in asked[group]),
            threads={group: max(1, math.floor(asked[group]["CPU"])) for group in asked if role_of(group).limited},
        )
        columns, environment = 0, {}
        if member.group == "coordinator" and sys.stderr.isatty():
            with contextlib.suppress(OSError):
                columns, environment = os.get_terminal_size(2).columns or 80, {"TERM": os.environ.get("TERM")}
        command = StartCommand(cloudpickle.dumps(member.node), member.id, options, environment, columns)
        member.proxy.start.remote(command)
        member.runs, member.started, member.since = True, False, time.monotonic()

    def ask(self, coordinator: Member, died: list[str]) -> None:
        """Lets the coordinator's host ask it to stop the program; see `fork_server.ask_to_stop`."""
        import cloudpickle

        coordinator.proxy.send.remote("ask", cloudpickle.dumps(coordinator.node.create_handle()), died)

    # Events ------------------------------------------------------------------------------------------------------

    def events(self) -> Iterator[tuple[Member, tuple]]:
        """Yields new events of the proxies; ends after a short time.

        Events are those of the hosts' fork servers (`host_server`), and `("arrived",)` and `("lost", why)` for the
        proxies themselves.
        """
        import ray
        from ray.exceptions import ActorUnavailableError, RayError

        asking = [member for member in self.members if member.proxy is not None]
        for member in asking:
            if member.question is None:
                ask = member.proxy.events.options(concurrency_group="events")
                member.question = ask.remote(member.heard)
        if not asking:
            time.sleep(_LOOK_S)
            return
        questions = {member.question: member for member in asking}
        ready, _ = ray.wait(list(questions), num_returns=1, timeout=_LOOK_S)
        for question in ready:
            member = questions[question]
            member.question = None
            try:
                answer = ray.get(question)
            except OSError as error:
                raise RunError(f"the connection to Ray is lost ({error}).") from error
            except ActorUnavailableError:
                if member.place is None:
                    yield member, ("lost", ".")
                continue  # the next call asks it again
            except RayError as error:
                first = str(error).strip().split("\n")[0]
                yield member, ("lost", f": {first}")
                continue
            if isinstance(answer, Place):
                self._arrive(member, answer)
                yield member, ("arrived",)
                continue
            member.heard += len(answer)
            for event in answer:
                yield member, event


def _fixed(text: str) -> Any:
    from acme_ext.launch.hosts import launchpad

    class Fixed(launchpad.AbstractAddressBuilder):
        def build(self) -> str:
            return text

    return Fixed()

"""What a program's fleet and driver do with the proxies of its nodes, without Ray: the proxies are the test's own."""

import pathlib
import signal
import sys
import time
import types

import pytest

from acme_ext import launch
from acme_ext.errors import RunError, UsageError
from acme_ext.launch.hosts.ray import driver
from acme_ext.launch.hosts.ray.fleet import Fleet
from acme_ext.launch.hosts.ray.proxy import Place


class Proxy:
    """Takes down what it is told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return types.SimpleNamespace(remote=lambda *arguments: self.told.append((name, *arguments)))


def place(host="a"):
    return Place(host, "10.0.0.1", True, pathlib.Path("/tmp"), 0)


def plan_of(topology, directory, **fields):
    named = {"run": "run", "groups": topology.groups, "resources": topology.all_resources, "directory": directory}
    return types.SimpleNamespace(**{**named, "path": [], "address": "auto", "wait_s": None, "grace_s": 1.0, **fields})


def fleet(topology, directory):
    made = Fleet(plan_of(topology, directory, address=None), print)
    for member in made.members:
        member.proxy, member.place = Proxy(), place()
    return made


@pytest.mark.parametrize(
    ("topology", "threads"),
    [
        (launch.Ray(actors=1, resources={"actor": {"CPU": 2}}), {"actor": 2, "evaluator": 1}),
        (launch.Ray(actors=0), {"evaluator": 1}),
    ],
)
def test_the_nodes_of_every_topology_can_be_started(topology, threads, tmp_path):
    made = fleet(topology, tmp_path)
    for member in made.members:
        made.start(member)
        ((what, command),) = member.proxy.told
        assert (what, command.id.name, command.options.threads) == ("start", member.name, threads)
        assert member.runs


def test_a_folder_that_can_not_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    made = fleet(launch.Ray(actors=1), tmp_path / "file" / "run")
    with pytest.raises(UsageError, match="file is a file: choose a folder"):
        made._make_token("learner")


class Driven:
    """A driver of a running program, each of whose groups has a host of its own, and the proxies that it sends."""

    def __init__(self, topology, directory, monkeypatch, **fields):
        plan = plan_of(topology, directory, **{"restarts": 5, **fields})
        self.sent, self.said = [], []
        monkeypatch.setattr(driver, "say", self.said.append)
        self.driver = driver.Driver(plan, None)
        self.fleet = self.driver._fleet
        self.by_name = {member.name: member for member in self.fleet.members}
        for member in self.fleet.members:
            member.proxy, member.place, member.node = Proxy(), place(member.group), object()
            member.runs = member.started = True
        monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(kill=lambda proxy: None))
        monkeypatch.setitem(sys.modules, "ray.exceptions", types.SimpleNamespace(RayError=ArithmeticError))
        monkeypatch.setattr(self.fleet, "send", self._send)

    def _send(self, member):
        self.sent.append(member.name)
        member.proxy, member.place, member.since, member.started = Proxy(), None, time.monotonic(), False

    def happen(self, *events):
        """What its proxies tell, as `(node's name, event)`."""
        self.fleet.events = lambda: iter([(self.by_name[name], event) for name, event in events])
        self.driver.poll_events()

    def pause(self, name):
        """How long a node waits for its restart, in seconds; None if it will not restart."""
        again = self.by_name[name].again
        return None if again is None else max(0, round(again - time.monotonic()))

    def restart(self, name):
        self.by_name[name].again = 0.0
        self.driver.start_due()


@pytest.fixture
def driven(tmp_path, monkeypatch):
    return lambda topology, **fields: Driven(topology, tmp_path / "run", monkeypatch, **fields)


def test_nodes_that_are_lost_together_count_once_and_one_that_is_lost_again_counts_again(driven):
    program = driven(launch.Ray(actors=3), restarts=3)
    lost = ("lost", ".")
    program.happen(("actor-0", lost), ("actor-1", lost))
    assert [program.pause(name) for name in ("actor-0", "actor-1")] == [0, 0]
    for pause in (1, 2):  # it can't be started elsewhere, say because its host lacks a package
        program.restart("actor-0")
        program.happen(("actor-0", lost))
        assert program.pause("actor-0") == pause
    assert not program.driver.policy.failed
    program.restart("actor-0")
    program.happen(("actor-0", lost))
    assert program.driver.policy.failed
    assert sorted(program.sent) == ["actor-0"] * 3 + ["actor-1"]


def test_a_node_whose_host_is_lost_before_its_restart_is_not_started_there(driven):
    program = driven(launch.Ray(actors=1, inference="server"))
    for pause in (0, 1):
        program.happen(("inference", ("ended", -9, ".")))
        assert program.pause("inference") == pause
        if not pause:
            program.restart("inference")
    program.driver.policy.request_stop(signal.SIGINT)
    program.happen(("inference", ("lost", ".")))
    program.driver.start_due()  # the remaining nodes make the last save
    assert (program.driver.policy.failed, program.driver.policy.ended) == (True, False)
    assert not program.by_name["inference"].runs
    assert program.sent == []


def relaunch(program, placed_at=()):
    """Starts the program again; at each look, the next of the nodes that have no host yet gets one."""
    looks = iter(placed_at)

    def events():
        if (name := next(looks, None)) is not None:
            program.by_name[name].place = place("b")
        return iter([])

    def bind(made):
        for member in program.fleet.members:
            member.node = made

    for member in program.fleet.members:
        member.node, member.runs = None, False
    program.fleet.events, program.fleet.bind = events, bind
    program.driver._plan.load = lambda first, spec: object()
    program.driver.launch(first=False)


def test_a_program_starts_again_without_an_actor_for_which_no_host_has_room(driven, monkeypatch):
    monkeypatch.setattr(driver, "ANSWER_S", 0.2)
    program = driven(launch.Ray(actors=2))
    waits = program.by_name["actor-1"]
    program.happen(("actor-1", ("lost", ".")))
    program.restart("actor-1")
    relaunch(program)
    assert {name: member.runs for name, member in program.by_name.items()} == {
        name: name != "actor-1" for name in ("replay", "coordinator", "learner", "evaluator", "actor-0", "actor-1")
    }
    waits.place = place("b")
    program.happen(("actor-1", ("arrived",)))
    assert waits.runs


@pytest.mark.parametrize("wait_s", [None, 60.0])
def test_a_program_that_starts_again_waits_for_a_server_s_host_as_long_as_for_all_at_first(driven, monkeypatch, wait_s):
    monkeypatch.setattr(driver, "ANSWER_S", 0.0)
    program = driven(launch.Ray(actors=1), wait_s=wait_s)
    program.by_name["learner"].proxy = program.by_name["learner"].place = None
    if wait_s is None:
        with pytest.raises(RunError, match="gave up after waiting 0 s for learner to be placed"):
            relaunch(program)
    else:
        relaunch(program, [None, None, "learner"])
        assert program.by_name["learner"].runs

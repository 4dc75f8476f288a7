"""What a program's fleet and driver do with the agents of its nodes, without Ray: the agents are the test's own."""

import pathlib
import types

import pytest

from acme_ext.launch.cluster import driver
from acme_ext.launch.cluster.agent import Place
from acme_ext.launch.cluster.fleet import Fleet
from acme_ext.launch.runners.program import SERVERS, Topology


class Agent:
    """Takes down what it is told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return types.SimpleNamespace(remote=lambda *arguments: self.told.append((name, *arguments)))


def place(host="a"):
    return Place(host, "10.0.0.1", True, pathlib.Path("/tmp"), 0)


def fleet(topology, directory):
    made = Fleet("run", topology.groups, topology.all_resources, directory, [], print, alone=True)
    for member in made.members:
        member.agent, member.place = Agent(), place()
    return made


@pytest.mark.parametrize(
    ("topology", "threads"),
    [
        (Topology(actors=1, resources={"actor": {"CPU": 2}}), {"actor": 2, "evaluator": 1}),
        (Topology(actors=0), {"evaluator": 1}),
    ],
)
def test_the_nodes_of_every_topology_can_be_started(topology, threads, tmp_path):
    made = fleet(topology, tmp_path)
    for member in made.members:
        made.start(member)
        ((what, order),) = member.agent.told
        assert (what, order.name, order.options.threads) == ("start", member.name, threads)
        assert member.runs

"""The table of roles, and the texts of a node's identity."""

import pytest

from acme_ext.launch.roles import ROLES, SERVERS, NodeId, Role, nodes_of, role_of


@pytest.mark.parametrize(
    ("node", "name", "text"),
    [
        (NodeId("learner"), "learner", "learner"),
        (NodeId("actor", 1), "actor-1", "actor 1"),
        (NodeId("actor", 1, 2), "actor-1, start 2", "actor 1, start 2"),
        (NodeId("actor-critic", 0, 0), "actor-critic-0, start 0", "actor-critic 0, start 0"),
        (NodeId("inference", None, 3), "inference, start 3", "inference, start 3"),
    ],
)
def test_a_node_has_a_name_for_people_and_one_for_the_coordinator_and_both_are_read(node, name, text):
    assert (node.name, str(node)) == (name, text)
    assert NodeId.parse(name) == NodeId.parse(text) == node
    assert node.key == str(NodeId(node.role, node.index))


def test_the_only_node_of_a_group_has_no_number_and_is_the_one_with_number_0():
    nodes = nodes_of({"learner": 1, "actor": 2})
    assert [node.name for node in nodes] == ["learner", "actor-0", "actor-1"]
    assert NodeId("actor").numbered == NodeId("actor", 0, 5).numbered == NodeId("actor", 0)


def test_servers_stop_after_those_that_call_them():
    assert SERVERS == ("inference", "learner", "replay", "coordinator")
    assert all(role.server for role in ROLES.values() if not role.resumable or role.writes)


def test_a_group_that_a_user_adds_restarts_alone_and_holds_no_state():
    assert role_of("watcher") == Role("watcher", server=False, resumable=True, movable=False, writes=False)
    assert role_of("learner") is ROLES["learner"]

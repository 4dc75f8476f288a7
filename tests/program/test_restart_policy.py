"""What follows from the ends of nodes, without nodes."""

import signal

import pytest

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.hosts.restart_policy import Next, RestartLimit, RestartPolicy
from acme_ext.launch.hosts.supervisor import starting_again
from acme_ext.launch.roles import NodeId

NOTHING = (Next.NOTHING, 0.0)


class World:
    """A policy, what it has said, and the time."""

    def __init__(self, restarts=0):
        self.now, self.said = 0.0, []
        made = RestartLimit(restarts, lambda: self.now)
        self.policy = RestartPolicy(made, self.said.append)

    def kill(self, name, **options):
        return self.policy.on_exit(NodeId.parse(name), "was killed", lambda: ".", **options)


@pytest.mark.parametrize("name", ["learner", "replay", "coordinator"])
def test_a_last_save_that_can_not_be_made_is_a_failure_after_an_interrupt_too(name):
    world = World(5)
    world.policy.request_stop(signal.SIGINT)
    assert world.kill(name) == NOTHING
    assert world.policy.ended
    assert world.policy.exit_code == 1
    assert world.said == [f"{name} was killed.", "so there is no last save, and the last checkpoint stands."]


@pytest.mark.parametrize("gone", [False, True])
def test_an_inference_server_that_dies_leaves_the_last_save_to_be_made(gone):
    world = World(0)
    world.policy.request_stop(signal.SIGTERM)
    assert world.kill("inference", gone=gone) == NOTHING
    assert not world.policy.ended
    assert world.policy.exit_code == 1


def test_an_inference_server_is_started_again_for_the_last_save():
    world = World(1)
    world.policy.request_stop(signal.SIGINT)
    assert world.kill("inference") == (Next.RESTART, 0.0)
    assert world.policy.exit_code == 128 + signal.SIGINT


def test_an_actor_that_dies_when_the_program_stops_is_not_missed():
    world = World(1)
    world.policy.request_stop(signal.SIGINT)
    assert world.kill("actor-1") == NOTHING
    assert world.kill("actor-0", code=0) == NOTHING
    assert not world.policy.ended
    assert world.policy.exit_code == 128 + signal.SIGINT
    assert world.said == []


def test_a_death_beyond_the_restarts_fails_the_program_after_a_last_save():
    world = World(1)
    assert world.kill("actor-1") == (Next.RESTART, 0.0)
    assert world.kill("actor-0", place=" on 10.0.0.1") == NOTHING
    assert (world.policy.failed, world.policy.ended) == (True, False)
    assert world.said == ["actor-1 was killed and is started again.", "actor-0 on 10.0.0.1 was killed."]
    world.policy.sum_up()
    assert world.said[2:] == ["restarts of nodes that had died: 1."]


def test_the_learner_s_death_ends_a_program_or_has_it_started_again_as_a_whole():
    world = World(0)
    assert world.kill("learner") == NOTHING
    assert world.policy.ended
    assert world.policy.exit_code == 1
    world = World(1)
    assert world.kill("learner") == (Next.RELAUNCH, 0.0)
    assert world.kill("replay") == NOTHING  # it ends everything anyway
    world.policy.relaunching = False
    assert world.kill("learner") == NOTHING
    assert world.policy.exit_code == 1


def test_a_server_whose_place_is_lost_can_not_be_started_again_by_itself():
    world = World(2)
    assert world.kill("inference", gone=True) == (Next.RELAUNCH, 0.0)
    world.policy.relaunching = False
    assert world.kill("actor-0", gone=True, free=True) == (Next.RESTART, 0.0)
    assert world.said[-1] == "actor-0 was killed, and is placed anew."


def test_a_coordinator_that_does_not_answer_is_a_failure():
    world = World()
    world.policy.request_stop(signal.SIGINT)
    world.policy.no_answer()
    assert world.policy.ended
    assert world.policy.exit_code == 1
    world = World()
    world.policy.request_stop(signal.SIGINT)
    world.policy.ended = True  # it has ended the program meanwhile
    world.policy.no_answer()
    assert world.policy.exit_code == 128 + signal.SIGINT


def test_the_second_interrupt_ends_at_once_and_a_second_sigterm_does_not():
    policy = World().policy
    policy.request_stop(signal.SIGINT)
    policy.request_stop(signal.SIGTERM)
    assert not policy.at_once
    policy.request_stop(signal.SIGINT)
    assert policy.at_once


def test_what_a_second_interrupt_kills_has_not_failed():
    world = World(1)
    for _ in range(2):
        world.policy.request_stop(signal.SIGINT)
    assert world.kill("learner") == NOTHING
    assert world.said == []
    assert world.policy.exit_code == 128 + signal.SIGINT


def test_what_dies_at_its_start_waits_longer_each_time_and_uses_up_its_hour():
    world = World(5)
    pauses = []
    for _ in range(5):
        what, pause = world.kill("actor-0")
        assert what is Next.RESTART
        pauses.append(pause)
        world.now += pause + 0.5  # it fails half a second after its start
    assert pauses == [0, 1, 2, 4, 8]
    assert "started again in 8 s." in world.said[-1]
    assert world.kill("actor-0") == NOTHING
    assert world.policy.failed


def test_restarts_are_counted_by_the_hour_and_a_node_that_ran_for_long_does_not_wait():
    now = 0.0
    restarts = RestartLimit(2, lambda: now)
    assert restarts.take("actor-0") == 0
    now = 1_000.0
    assert restarts.take("actor-0") == 0
    assert restarts.take("actor-1") is None
    now = 3_600.0  # the first is an hour ago
    assert restarts.take("actor-1") == 0
    assert restarts.take("actor-1") is None


def test_the_longest_wait_is_a_minute():
    restarts = RestartLimit(1_000, lambda: 0.0)
    assert [restarts.take("actor-0") for _ in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_program_that_can_not_start_again_has_failed():
    with pytest.raises(RunError, match="the program could not start again: the folder is gone"), starting_again():
        raise UsageError("the folder is gone")

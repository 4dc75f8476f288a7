"""The inference node by itself: the test is its callers, its learner and its coordinator."""

import dataclasses
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext import envs
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.policy import Policy
from acme_ext.acting.remote import RemoteExperience, RemoteInference, Reply
from acme_ext.acting.variables import VariableClient
from acme_ext.builders.base import Builder
from acme_ext.launch.experiment import Experiment
from acme_ext.launch.nodes.inference import InferenceNode
from acme_ext.launch.nodes.reports import Orders, StopWaitingError
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.replay.server import ReplayServer

ACTORS, NUM_ENVS, UNITS, LENGTH = 2, 4, 3, 5
PATIENCE_S = 30


@dataclasses.dataclass(frozen=True)
class Remembering(Builder):
    """A policy that samples from what it remembers, and a queue of unrolls."""

    name: ClassVar[str] = "remembering"
    config: int = 100  # items that the queue holds

    def make_replay(self, spec):
        return SequenceReplay(
            spec,
            batch_size=1,
            max_size=self.config,
            order="queue",
            length=LENGTH,
            period=LENGTH,
            discount=0.9,
            cross_episodes=True,
            extras={"logits": np.zeros(UNITS, np.float32)},
            state={"memory": np.zeros(UNITS, np.float32)},
        )

    def make_policy(self, spec, *, evaluation=False):
        weights = jax.random.normal(jax.random.key(1), (UNITS + 4 + 1, UNITS))

        def apply(params, context, observation, state):
            inputs = jnp.concatenate([state["memory"], observation, context.reward[:, None]], axis=-1)
            memory = jnp.tanh(params * (inputs @ weights))
            action = jax.vmap(jax.random.categorical)(context.key, memory + context.rank[:, None]) % 2
            return action, {"memory": memory}, {"logits": memory}

        return Policy(apply, lambda batch: {"memory": jnp.zeros((batch, UNITS))})

    def make_core(self, spec):
        raise NotImplementedError


class World:
    """The learner and the coordinator."""

    def __init__(self):
        self.stop = False
        self.version = 3

    def variables(self, held):
        return self.version, pickle.dumps(np.float32(0.5)) if held < self.version else None

    def enter(self, name):
        return 0

    def report(self, node, state, counts, rows=()):
        return tuple(Orders(self.stop, 0))


@pytest.fixture
def experiment():
    return Experiment(Remembering(), "gym:CartPole-v1", steps=1_000, num_envs=NUM_ENVS, seed=3)


@pytest.fixture
def replay(experiment):
    with envs_of(experiment) as environment:
        made = experiment.builder.make_replay(envs.make_spec(environment))
    server = ReplayServer(made.tables())
    yield server, made
    server.close()


@pytest.fixture
def start(experiment, request):
    """Starts a node; it ends with the test."""

    def start(world=None, *, replays=(None,), experience=True):
        world = world or World()
        node = InferenceNode(experiment, ACTORS, replays, world, world, callers=2, experience=experience)

        def end():
            world.stop = node._stopping = True
            node._batcher.close(StopWaitingError())
            node._variables.close()
            for seat in node._seats.values():
                if seat.writer is not None:
                    seat.writer.close()

        request.addfinalizer(end)
        return node

    return start


class envs_of:  # noqa: N801
    """A batch of the experiment's environments, closed at the end."""

    def __init__(self, experiment, num_envs=NUM_ENVS, part=1):
        self.environment = experiment.make_environment(num_envs, part=part)

    def __enter__(self):
        return self.environment

    def __exit__(self, *_):
        self.environment.close()


def copied(timestep):
    return dm_env.TimeStep(*(np.copy(field) for field in timestep))


def rows(timestep, mine):
    return tuple(np.copy(field[mine]) for field in timestep)


def test_actions_are_those_of_the_local_policy_whoever_else_asks(experiment, start):
    node, rng = start(), np.random.default_rng(0)
    with envs_of(experiment) as environment:
        policy = experiment.builder.make_policy(envs.make_spec(environment))
        ranks = experiment.ranks(ACTORS)
        source = type("Source", (), {"get_variables": lambda self, names: [np.float32(0.5)]})()
        local = [
            LocalInference(
                policy,
                VariableClient(source),
                experiment.actor_key(actor, 0),
                NUM_ENVS,
                ranks[actor * NUM_ENVS : (actor + 1) * NUM_ENVS],
            )
            for actor in range(ACTORS)
        ]
        timestep = environment.reset()
        with ThreadPoolExecutor(2 * ACTORS) as callers:
            for tick in range(60):
                # Both actors see the same, and differ in their randomness and ranks.
                expected = [inference.step(7, timestep) for inference in local]
                asked = {}
                for actor, caller in rng.permutation([(a, c) for a in range(ACTORS) for c in range(2)]):
                    mine = np.arange(NUM_ENVS).reshape(2, -1)[caller]
                    asked[actor, caller] = callers.submit(
                        node.act, actor, caller, 0, tick, 7, rows(timestep, mine), True
                    )
                for (actor, caller), future in asked.items():
                    mine, reply = np.arange(NUM_ENVS).reshape(2, -1)[caller], Reply(*future.result(PATIENCE_S))
                    np.testing.assert_array_equal(reply.action, expected[actor].action[mine])
                    close = {"rtol": 1e-5, "atol": 1e-6}
                    np.testing.assert_allclose(reply.extras["logits"], expected[actor].extras["logits"][mine], **close)
                    before = np.asarray(expected[actor].state["memory"])[mine]
                    np.testing.assert_allclose(reply.state["memory"], before, **close)
                    assert reply.version == 3
                timestep = environment.step(expected[0].action)
        assert (timestep.step_type == dm_env.StepType.FIRST).sum() < NUM_ENVS


def test_a_request_that_comes_twice_is_acted_on_once(experiment, start):
    node = start()
    with envs_of(experiment, 2) as environment:
        timestep = tuple(copied(environment.reset()))
        first = node.act(0, 0, 0, 0, 0, timestep, True)
        stepped = node._core.rows
        again = node.act(0, 0, 0, 0, 0, timestep, True)
        assert node._core.rows == stepped
        for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
            np.testing.assert_array_equal(one, other)
        # Recurrent state went one step, not two.
        later = Reply(*node.act(0, 0, 0, 1, 0, timestep, True))
        assert (later.state["memory"] == 0).all()  # the timestep is a first one
        with pytest.raises(ValueError, match="request 0 of start 0 comes after 1 of start 0"):
            node.act(0, 0, 0, 0, 0, timestep, True)


def test_an_actor_that_is_started_again_begins_anew(experiment, start):
    node = start()
    with envs_of(experiment, 2) as environment:
        timestep = environment.reset()
        for tick in range(3):
            reply = Reply(*node.act(0, 0, 0, tick, 0, tuple(copied(timestep)), True))
            timestep = environment.step(reply.action)
        middle = tuple(copied(timestep))
        assert (Reply(*node.act(0, 0, 0, 3, 0, middle, True)).state["memory"] != 0).all()
        begun = Reply(*node.act(0, 0, 1, 0, 0, middle, True))
        assert (begun.state["memory"] == 0).all()
        # With randomness of its own: 40 draws of the two starts differ somewhere.
        draws = [
            [Reply(*node.act(a, 0, r, t, 0, middle, False)).action for t in range(1, 21)] for a, r in ((0, 1), (0, 2))
        ]
        assert (np.array(draws[0]) != np.array(draws[1])).any()


def test_a_bad_request_fails_its_caller_alone(experiment, start):
    node = start()
    with envs_of(experiment, 2) as environment:
        good = tuple(copied(environment.reset()))
    bad = (*good[:3], good[3][:, :3])
    with ThreadPoolExecutor(2) as callers:
        refused = callers.submit(node.act, 0, 0, 0, 0, 0, bad, False)
        served = callers.submit(node.act, 1, 0, 0, 0, 0, good, False)
        assert len(Reply(*served.result(PATIENCE_S)).action) == 2
        with pytest.raises(ValueError, match=r"where .* was expected"):
            refused.result(PATIENCE_S)
    # It can ask again, properly.
    assert len(Reply(*node.act(0, 0, 0, 0, 0, good, False)).action) == 2


def drive(node, environment, writer, ticks, *, start=0):
    """Steps two environments as an actor's part does; returns the observations it saw `[T, 2, 4]`."""

    def act(*arguments):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(node.act, 0, 0, start, *arguments)

    remote = RemoteInference(act, with_state=False)
    timestep = environment.reset()
    writer.add_first(timestep)
    seen = [timestep.observation.copy()]
    for _ in range(ticks):
        acted = remote.step(0, timestep)
        assert acted.extras == acted.state == ()
        timestep = environment.step(acted.action)
        writer.add(acted.action, timestep)
        seen.append(timestep.observation.copy())
    return np.array(seen)


def test_unrolls_are_made_on_the_server_and_never_hold_two_starts(experiment, start, replay):
    server, made = replay
    node = start(replays=[server.client], experience=False)
    with envs_of(experiment, 2) as environment, envs_of(experiment, 2, part=2) as other:
        first = drive(node, environment, RemoteExperience(lambda newest: node.leave(0, 0, newest)), 2 * LENGTH + 2)
        # The actor is killed here, without a word, and started again.
        writer = RemoteExperience(lambda newest: node.leave(0, 0, newest))
        second = drive(node, other, writer, LENGTH + 1, start=1)
        writer.flush()
    dataset = made.dataset(server.client, node._seats[0, 0].writer.inserted)
    try:
        unrolls = made.decode(next(dataset).rows)
    finally:
        dataset.close(wake=True)
    lives = {0: first, 1: second}
    found = {0: 0, 1: 0}
    for item in range(unrolls.mask.shape[1]):
        taken = unrolls.mask[:, item] > 0
        if not taken.any():
            continue
        there = unrolls.observation[: int(np.nonzero(taken)[0][-1]) + 2, item]
        matches = [
            (life, env, t)
            for life, seen in lives.items()
            for env in range(2)
            for t in range(0, len(seen) - 1, LENGTH)
            if len(seen) >= t + len(there) and np.array_equal(seen[t : t + len(there), env], there)
        ]
        assert len(matches) == 1  # it is a stretch of one life of one environment, from where one begins
        found[matches[0][0]] += int(taken.sum())
    # All that was heard of before the actor was killed, and all that the second did.
    assert found[0] >= 2 * 2 * LENGTH
    assert found[1] > 2 * LENGTH


def test_a_replay_that_takes_no_more_holds_back_the_answers(experiment, start, replay):
    _, made = replay
    small = dataclasses.replace(experiment, builder=Remembering(config=3))
    world = World()
    tables = ReplayServer(small.builder.make_replay(made.spec).tables())
    try:
        node = InferenceNode(small, ACTORS, [tables.client], world, world, callers=2, experience=False)
        node._seats[0, 0].writer._max_pending = 2
        answered = [0]

        def act_on():
            with envs_of(small, 2) as environment:
                timestep = environment.reset()
                for tick in range(10_000):
                    if (answer := node.act(0, 0, 0, tick, 0, tuple(copied(timestep)), False)) is None:
                        return
                    answered[0] += 1
                    timestep = environment.step(Reply(*answer).action)

        thread = threading.Thread(target=act_on)
        thread.start()
        deadline, before = time.monotonic() + PATIENCE_S, -1
        while (answered[0] != before or before < LENGTH) and time.monotonic() < deadline:
            before = answered[0]
            time.sleep(1.0)
        # Room for 3 in the queue and 2 on the way, of 2 environments: no more than a few unrolls, for ever.
        assert LENGTH < answered[0] <= 8 * LENGTH
        assert thread.is_alive()
        node._stopping = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()  # it was told of the end
        node._batcher.close(StopWaitingError())
        node._variables.close()
        node._seats[0, 0].writer.close()
    finally:
        tables.close()

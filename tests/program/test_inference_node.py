"""The inference node by itself: the test is its callers, its learner and its coordinator."""

import contextlib
import dataclasses
import pickle
import threading
import time
from typing import ClassVar

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import Client

from acme_ext import envs
from acme_ext.acting.actor import Actor
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.policy import Policy, PolicyMemory, StateAndMemory
from acme_ext.acting.remote import RemoteExperience, RemoteInference, Reply
from acme_ext.acting.slots import bucket_sizes
from acme_ext.acting.variables import VariableClient
from acme_ext.builders.base import Builder
from acme_ext.config import AgentConfig
from acme_ext.launch.engines.program.nodes import inference as nodes_inference
from acme_ext.launch.engines.program.nodes import reports
from acme_ext.launch.engines.program.nodes.inference import InferenceNode
from acme_ext.launch.engines.program.nodes.reports import Orders
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.config import UnrollConfig
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.utils.calls import TOKEN_BYTES, RemoteCall

ACTORS, NUM_ENVS, UNITS, LENGTH = 2, 4, 3, 5
PATIENCE_S = 30
TOKEN = b"t" * TOKEN_BYTES


@dataclasses.dataclass(frozen=True)
class RememberingConfig(AgentConfig):
    """The size of the queue."""

    max_size: int = 100
    batch_size: int = 1
    discount: float = 0.9
    replay: UnrollConfig = UnrollConfig(max_size=100, length=LENGTH)


@dataclasses.dataclass(frozen=True)
class Remembering(Builder):
    """A policy that samples from what it remembers, and a queue of unrolls."""

    name: ClassVar[str] = "remembering"
    config: RememberingConfig = RememberingConfig()

    def make_networks(self, spec):
        return None

    def make_replay(self, spec, networks):
        return SequenceReplay(
            spec,
            batch_size=self.config.batch_size,
            max_size=self.config.max_size,
            order="queue",
            length=LENGTH,
            period=LENGTH,
            discount=0.9,
            cross_episodes=True,
            extras={"logits": np.zeros(UNITS, np.float32)},
            state={"memory": np.zeros(UNITS, np.float32)},
        )

    def make_policy(self, spec, networks, *, evaluation=False):
        weights = jax.random.normal(jax.random.key(1), (UNITS + 4 + 1, UNITS))

        def apply(params, context, observation, state):
            inputs = jnp.concatenate([state["memory"], observation, context.reward[:, None]], axis=-1)
            memory = jnp.tanh(params * (inputs @ weights))
            action = jax.vmap(jax.random.categorical)(context.key, memory + context.rank[:, None]) % 2
            return action, {"memory": memory}, {"logits": memory}

        return Policy(apply, lambda batch: {"memory": jnp.zeros((batch, UNITS))})

    def make_core(self, spec, networks):
        return LearnerCore(lambda key: (), lambda state, sample: ((), {}, None), lambda state: {})


@dataclasses.dataclass(frozen=True)
class Counting(Remembering):
    """A policy that carries how many episodes each environment has begun."""

    name: ClassVar[str] = "counting"

    def make_policy(self, spec, networks, *, evaluation=False):
        def apply(params, context, observation, state):
            run = context.memory.run + context.first
            return run % 2, StateAndMemory(state, PolicyMemory(run, context.memory.episode)), ()

        def policy_memory(batch):
            return PolicyMemory(np.zeros(batch, np.int32), ())

        return Policy(apply, init_policy_memory=policy_memory, shared_statistics=lambda run: [jnp.sum(run)])


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
        made = experiment.builder.make_agent(envs.make_spec(environment)).replay
    server = ReverbStore(made)
    yield server, made
    server.close()


@pytest.fixture
def start(experiment, request):
    """Starts a node; it ends with the test."""

    def start(world=None, *, replays=(None,), experience=True, builder=experiment.builder, index=0, servers=1, **more):
        world = world or World()
        described = dataclasses.replace(experiment, builder=builder)
        spec = described.make_spec()
        options = {"index": index, "servers": servers, "callers": 2, "experience": experience, "token": TOKEN, **more}
        node = InferenceNode(described, spec, ACTORS, replays, world, Client(world), **options)

        def end():
            world.stop = True
            node.end()

        request.addfinalizer(end)
        return node

    return start


class OverError(Exception):
    """Nobody waits for an answer any more."""


class envs_of:  # noqa: N801
    """A batch of the experiment's environments, closed at the end."""

    def __init__(self, experiment, num_envs=NUM_ENVS, part=1):
        self.environment = experiment.make_environment(num_envs, part=part)

    def __enter__(self):
        return self.environment

    def __exit__(self, *_):
        self.environment.close()


@pytest.fixture
def caller(request):
    """Makes what calls a node as an actor's part does."""

    end = time.monotonic() + 2 * PATIENCE_S

    def caller(node, actor=0, part=0, start=0, over=None):
        def on_wait():
            assert time.monotonic() < end
            if over is not None and over.is_set():
                raise OverError

        made = RemoteCall(lambda: ("localhost", node.port()), on_wait, token=TOKEN, first=(actor, part, start))
        request.addfinalizer(made.close)
        return made

    return caller


def act(call, tick, timestep, *, steps=0, with_state=True):
    call.begin("act", tick, steps, tuple(timestep), with_state)
    return Reply(*call.end())


def copied(timestep):
    return dm_env.TimeStep(*(np.copy(field) for field in timestep))


def rows(timestep, mine):
    return tuple(np.copy(field[mine]) for field in timestep)


def test_a_server_is_told_the_spec_and_makes_no_environment(start, monkeypatch):
    make, made = Experiment.make_environment, []
    monkeypatch.setattr(Experiment, "make_environment", lambda *a, **k: made.append(a) or make(*a, **k))
    start()
    assert len(made) == 1  # by the fixture, for its specs


@pytest.mark.parametrize("servers", [1, pytest.param(2, marks=pytest.mark.release)])
def test_actions_are_those_of_the_local_policy_whoever_else_asks(experiment, start, caller, servers):
    nodes, rng = [start(index=index, servers=servers) for index in range(servers)], np.random.default_rng(0)
    with envs_of(experiment) as environment:
        policy = experiment.builder.make_agent(envs.make_spec(environment)).policy
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
        whose = [nodes[actor % servers] for actor in range(ACTORS)]
        calls = {(actor, part): caller(whose[actor], actor, part) for actor in range(ACTORS) for part in range(2)}
        for tick in range(60):
            # Both actors see the same, and differ in their randomness and ranks.
            expected = [inference.step(7, timestep) for inference in local]
            for who in rng.permutation(list(calls)):
                mine = np.arange(NUM_ENVS).reshape(2, -1)[who[1]]
                calls[tuple(who)].begin("act", tick, 7, rows(timestep, mine), True)
            for (actor, part), call in calls.items():
                mine, reply = np.arange(NUM_ENVS).reshape(2, -1)[part], Reply(*call.end())
                # Rounding would turn a draw or two of a million.
                np.testing.assert_array_equal(reply.action, expected[actor].action[mine])
                close = {"rtol": 1e-5, "atol": 1e-6}
                np.testing.assert_allclose(reply.extras["logits"], expected[actor].extras["logits"][mine], **close)
                before = np.asarray(expected[actor].state["memory"])[mine]
                np.testing.assert_allclose(reply.state["memory"], before, **close)
                assert reply.version == 3
            timestep = environment.step(expected[0].action)
        assert (timestep.step_type == dm_env.StepType.FIRST).sum() < NUM_ENVS
    for node in nodes:
        assert node.fill()[0] == 60 * NUM_ENVS * ACTORS // servers
        assert node.compilations() == len(bucket_sizes(NUM_ENVS * ACTORS // servers))


def test_a_server_acts_for_its_own_actors_alone(experiment, start, caller):
    node = start(index=1, servers=2)
    with envs_of(experiment, 2) as environment:
        timestep = copied(environment.reset())
    with pytest.raises(RuntimeError, match=r"KeyError: \(0, 0\)"):
        act(caller(node, actor=0), 0, timestep)
    assert len(act(caller(node, actor=1), 0, timestep).action) == 2


class Keeping(World):
    """A coordinator that keeps what policies carry."""

    def __init__(self):
        super().__init__()
        self.by_name = {}

    def keep(self, node, name, memory, statistics):
        self.by_name[name] = memory, statistics

    def kept(self, name):
        return self.by_name.get(name, (None,))[0]


@pytest.mark.parametrize(("servers", "name"), [(1, "inference"), (2, "inference 1 of 2")])
def test_what_its_policy_carries_is_kept_for_as_many_servers(experiment, start, caller, monkeypatch, servers, name):
    monkeypatch.setattr(reports, "_KEEP_S", 0.0)
    world, options = Keeping(), {"builder": Counting(), "servers": servers}
    with envs_of(experiment, 2) as environment:
        timestep = copied(environment.reset())
    for episodes in (2, 4):  # the second is started in the place of the first
        node = start(world, index=servers - 1, **options)
        act(caller(node, actor=1), 0, timestep)
        node.end()
        assert list(world.by_name) == [name]
        assert world.by_name[name][1] == [episodes]


def test_a_request_that_comes_twice_is_acted_on_once(experiment, start, caller):
    node = start()
    with envs_of(experiment, 2) as environment:
        timestep = copied(environment.reset())
        first = act(caller(node), 0, timestep)
        stepped = node.fill()
        again = act(caller(node), 0, timestep)  # on another connection, as after the loss of one
        assert node.fill() == stepped
        for one, other in zip(jax.tree.leaves(tuple(first)), jax.tree.leaves(tuple(again)), strict=True):
            np.testing.assert_array_equal(one, other)
        # Recurrent state went one step, not two.
        call = caller(node)
        assert (act(call, 1, timestep).state["memory"] == 0).all()  # the timestep is a first one
        with pytest.raises(RuntimeError, match="request 0 of start 0 comes after 1 of start 0"):
            act(call, 0, timestep)


def test_a_request_that_comes_again_while_the_first_waits_is_acted_on_once(experiment, start, caller):
    node = start()
    with envs_of(experiment, 2) as environment:
        timestep = copied(environment.reset())
        node._batcher._wait_s, node._batcher._share = PATIENCE_S, 1.0
        node._batcher._seen["somebody else"] = (time.monotonic() + PATIENCE_S, 100)  # whom it waits for
        lost, call, before = caller(node), caller(node), node.fill()[0]
        lost.begin("act", 0, 0, tuple(timestep), True)
        call.begin("act", 0, 0, tuple(timestep), True)
        np.testing.assert_array_equal(Reply(*call.end()).action, Reply(*lost.end()).action)
        assert node.fill()[0] == before + 2


def test_an_actor_that_is_started_again_begins_anew(experiment, start, caller):
    node = start()
    with envs_of(experiment, 2) as environment:
        timestep, call = environment.reset(), caller(node)
        for tick in range(3):
            timestep = environment.step(act(call, tick, timestep).action)
        middle = copied(timestep)
        assert (act(call, 3, middle).state["memory"] != 0).all()
        assert (act(caller(node, start=1), 0, middle).state["memory"] == 0).all()
        # With randomness of its own: 40 draws of the two starts differ somewhere.
        again = [caller(node, actor, start=run) for actor, run in ((0, 1), (0, 2))]
        draws = [[act(call, tick, middle).action for tick in range(1, 21)] for call in again]
        assert (np.array(draws[0]) != np.array(draws[1])).any()


def test_a_bad_request_fails_its_caller_alone(experiment, start, caller):
    node = start()
    with envs_of(experiment, 2) as environment:
        good = tuple(copied(environment.reset()))
    bad = (*good[:3], good[3][:, :3])
    one, other = caller(node), caller(node, actor=1)
    one.begin("act", 0, 0, bad, False)
    other.begin("act", 0, 0, good, False)
    assert len(Reply(*other.end()).action) == 2
    with pytest.raises(RuntimeError, match=r"where .* was expected"):
        one.end()
    few = tuple(leaf[:1] for leaf in good)
    with pytest.raises(RuntimeError, match="observations of 2"):
        act(one, 0, few)
    one.begin("jump")
    with pytest.raises(RuntimeError, match="KeyError: 'jump'"):
        one.end()
    # It can ask again, properly.
    assert len(act(one, 0, good).action) == 2


def drive(call, environment, ticks):
    """Steps two environments as an actor's part does; returns the observations it saw `[T, 2, 4]` and its writer."""
    remote = RemoteInference(call, with_state=False)
    actor = Actor(remote, num_envs=2, writer=RemoteExperience(remote))
    timestep = environment.reset()
    actor.observe_first(timestep)
    seen = [timestep.observation.copy()]
    for _ in range(ticks):
        action = actor.select_action(timestep.observation)
        timestep = environment.step(action)
        actor.observe(action, timestep)
        actor.begin()
        seen.append(timestep.observation.copy())
    return np.array(seen), actor._writer


def test_unrolls_are_made_on_the_server_and_never_hold_two_starts(experiment, replay, start, caller):
    server, made = replay
    node = start(replays=[server.table], experience=False)
    with envs_of(experiment, 2) as environment, envs_of(experiment, 2, part=2) as other:
        first, _ = drive(caller(node), environment, 2 * LENGTH + 2)
        # The actor is killed here, without a word, and started again.
        second, writer = drive(caller(node, start=1), other, LENGTH + 1)
        writer.flush()
    dataset = server.table.batches(node._seats[0, 0].writer.inserted)
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


@pytest.mark.parametrize("asked", [False, True])
def test_what_is_unfinished_is_written_once_when_a_caller_leaves(experiment, replay, start, caller, asked):
    server, made = replay
    node = start(replays=[server.table], experience=False)
    remote = RemoteInference(caller(node), with_state=False)
    experience = RemoteExperience(remote)
    with envs_of(experiment, 2) as environment:
        timestep = environment.reset()
        experience.add_first(timestep)
        for _ in range(3):
            action = remote.step(0, timestep).action
            timestep = environment.step(action)
            experience.add(action, timestep)
        if asked:
            remote.begin(0, timestep)
        experience.flush()
        experience.flush()
    assert node._seats[0, 0].writer.inserted == 2
    dataset = server.table.batches(2)
    try:
        unrolls = made.decode(next(dataset).rows)
    finally:
        dataset.close(wake=True)
    assert unrolls.mask.sum(axis=0).tolist() == [3, 3]


def test_an_actor_s_own_writer_begins_anew_after_a_restart_of_the_server(experiment, start, caller):
    class Writer:
        events: ClassVar[list] = []

        def add_first(self, timestep):
            self.events.append("first")

        def add(self, action, timestep, extras):
            self.events.append("step")

    nodes = [start()]
    call = RemoteCall(lambda: ("localhost", nodes[-1].port()), lambda: None, token=TOKEN, first=(0, 0, 0))
    actor = Actor(RemoteInference(call, with_state=False), num_envs=2, writer=Writer())
    with contextlib.closing(call), envs_of(experiment, 2) as environment:
        timestep = environment.reset()
        actor.observe_first(timestep)
        for number in range(6):
            if number == 3:
                nodes[0].end()
                nodes.append(start())
            action = actor.select_action(timestep.observation)
            timestep = environment.step(action)
            actor.observe(action, timestep)
    assert Writer.events == ["first", *["step"] * 3, "first", *["step"] * 3]


def test_a_server_that_is_told_to_stop_writes_what_it_recorded_without_waiting_for_all_callers(
    experiment, replay, start, caller
):
    server, _ = replay
    world, reported, flushed = World(), {}, threading.Event()
    report = world.report
    world.report = lambda node, state, counts, rows=(): reported.update(counts) or report(node, state, counts, rows)

    class Folder:
        def add(self, episode):
            pass

        flush = close = staticmethod(flushed.set)

    node = start(world, replays=[server.table], experience=False, record=lambda spec, name: Folder())
    with envs_of(experiment, 2) as environment:
        act(caller(node), 0, environment.reset())
    node._reporter.report("serving", now=True)
    assert reported[reports.UNWRITTEN] == 1
    assert not flushed.is_set()
    world.stop = True
    node._reporter.report("serving", now=True)
    while not node._written.wait(0.05):
        node._calls.wake()
    assert flushed.is_set()


def test_after_an_error_the_program_does_not_wait_for_recorded_episodes(replay, start, monkeypatch):
    server, _ = replay
    world, reported = World(), {}
    report = world.report
    world.report = lambda node, state, counts, rows=(): reported.update(counts) or report(node, state, counts, rows)
    folder = type("Folder", (), {"close": lambda self: None})
    node = start(world, replays=[server.table], experience=False, record=lambda spec, name: folder())
    node._reporter.report("serving", now=True)
    assert reported[reports.UNWRITTEN] == 1
    node._error = ValueError("on purpose")
    monkeypatch.setattr(nodes_inference.lp, "wait_for_stop", lambda timeout_s: False)
    with pytest.raises(ValueError, match="on purpose"):
        node.run()
    assert reported[reports.UNWRITTEN] == 0


@pytest.fixture
def blocked(experiment, replay):
    """A queue that has room for little more than 3 unrolls, which nobody draws."""
    _, made = replay
    server = ReverbStore(dataclasses.replace(made, max_size=3))
    yield server
    server.close()


class Pestering(threading.Thread):
    """Acts on and on, until it is told of the end, or to end."""

    def __init__(self, caller, node, experiment):
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.call = caller(node, over=self.over)
        self.experiment, self.answered, self.told = experiment, 0, False
        self.start()

    def end(self):
        self.over.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()

    def run(self):
        with contextlib.suppress(OverError), envs_of(self.experiment, 2) as environment:
            timestep = environment.reset()
            for tick in range(100_000):
                self.call.begin("act", tick, 0, tuple(timestep), False)
                if (answer := self.call.end()) is None:
                    self.told = True
                    return
                self.answered += 1
                timestep = environment.step(Reply(*answer).action)

    def settle(self):
        """Waits until it is not answered any more."""
        deadline, before = time.monotonic() + PATIENCE_S, -1
        while (self.answered != before or before < LENGTH) and time.monotonic() < deadline:
            before = self.answered
            time.sleep(1.0)


def test_a_replay_that_takes_no_more_holds_back_the_answers(experiment, start, caller, blocked):
    node = start(replays=[blocked.table], experience=False)
    thread = Pestering(caller, node, experiment)
    thread.settle()
    # Room for 3 in the queue and 2 on the way, of 2 environments: no more than a few unrolls, for ever.
    assert LENGTH < thread.answered <= 8 * LENGTH
    assert thread.is_alive()
    node.end()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert thread.told


def test_a_full_shard_holds_back_nobody_who_writes_to_another(experiment, start, caller, blocked, replay):
    other, _ = replay
    node = start(
        replays=[blocked.table, other.table], experience=False, builder=Remembering(RememberingConfig(batch_size=2))
    )
    held = Pestering(caller, node, experiment)
    held.settle()
    with envs_of(experiment, 2) as environment:
        timestep, call = environment.reset(), caller(node, actor=1)
        for tick in range(10 * LENGTH):
            timestep = environment.step(act(call, tick, timestep).action)
    answered = held.answered
    assert held.is_alive()
    # What is asked again is not told again, and is answered when there is room.
    inserted = node._seats[0, 0].writer.inserted
    again = caller(node)
    with envs_of(experiment, 2) as environment:
        again.begin("act", answered, 0, tuple(environment.reset()), False)
        time.sleep(0.5)
        assert node._seats[0, 0].writer.inserted == inserted
        assert held.answered == answered
        for table in blocked.client.server_info():
            blocked.client.reset(table)
        assert len(Reply(*again.end()).action) == 2
    node.end()
    held.end()


def told_to(node):
    """The first time steps that the writer of a node's first seat is told from now on."""
    told, writer = [], node._seats[0, 0].writer
    begin = writer.add_first
    writer.add_first = lambda newest: told.append(newest) or begin(newest)
    return told


def test_a_first_request_that_is_held_is_not_told_twice_either(experiment, start, caller, blocked):
    node = start(replays=[blocked.table], experience=False)
    thread = Pestering(caller, node, experiment)
    thread.settle()
    with envs_of(experiment, 2) as environment:
        timestep = tuple(copied(environment.reset()))
        told = told_to(node)
        calls = [caller(node, start=1) for _ in range(2)]  # the second after the first has lost its connection
        for call in calls:
            call.begin("act", 0, 0, timestep, False)
            time.sleep(0.5)
        assert len(told) == 1
        for table in blocked.client.server_info():
            blocked.client.reset(table)
        assert len(Reply(*calls[1].end()).action) == 2
    node.end()
    thread.end()


def test_a_request_that_is_sent_again_after_the_order_to_stop_is_not_told_twice(experiment, start, caller, blocked):
    world = World()
    node = start(world, replays=[blocked.table], experience=False)
    thread = Pestering(caller, node, experiment)
    thread.settle()
    with envs_of(experiment, 2) as environment:
        timestep = tuple(copied(environment.reset()))
        told = told_to(node)
        call = caller(node, start=1)
        call.begin("act", 0, 0, timestep, False)
        time.sleep(0.5)
        world.stop = True
        node._reporter.report("serving", now=True)  # as `run` does, and is told to stop
        assert call.end() is None
        call.begin("act", 0, 0, timestep, False)
        assert call.end() is None
        assert len(told) == 1
    node.end()
    thread.end()

"""Rows that hold each frame of stacked observations once."""

import dm_env
import jax
import numpy as np
import pytest
import spec_of
import tree
from dm_env import specs
from kept_rows import Rows

from acme_ext import envs
from acme_ext.errors import RunError
from acme_ext.replay.frames import FrameLayout
from acme_ext.replay.nstep import transition_spec
from acme_ext.replay.rows import Layout
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.replay.unrolls import sequence_spec
from acme_ext.specs import StackedFrames

SIZE, DEPTH, ENVS = 5, 4, 3
SPEC = spec_of.discrete(3, (SIZE, SIZE, DEPTH), np.uint8)._replace(
    observations={
        "picture": StackedFrames((SIZE, SIZE, DEPTH), np.uint8, 0, 255, "picture"),
        "score": specs.Array((), np.float32),
    }
)


class Plain:
    """A replay's rows by a layout of every field as it is, beside its own."""

    def __init__(self, replay, fields, num_envs=ENVS):
        self.own, self.plain = Rows(), Rows()
        self.writers = [replay.writer(sink, num_envs) for sink in (self.own, self.plain)]
        self.layout = Layout(fields)
        self.writers[1]._layout = self.layout

    def call(self, name, *arguments):
        for writer in self.writers:
            getattr(writer, name)(*arguments)


def timesteps(count, seed, still=False):
    """Timesteps `[ENVS]` of episodes of random lengths whose pictures are the newest four frames, blank ones first."""
    rng = np.random.default_rng(seed)
    stack, kind = np.zeros((ENVS, SIZE, SIZE, DEPTH), np.uint8), np.full(ENVS, 2)
    for _ in range(count):
        kind = np.where(kind == 2, 0, np.where(rng.random(ENVS) < 0.15, 2, 1)).astype(np.uint8)
        stack[kind == 0] = 0
        new = rng.integers(0, 2 if still else 256, (ENVS, SIZE, SIZE), np.uint8)
        stack = np.concatenate([stack[..., 1:], 0 * new[..., None] if still else new[..., None]], axis=-1)
        score = rng.normal(size=ENVS).astype(np.float32)
        yield dm_env.TimeStep(kind, score, (kind != 2).astype(np.float32), {"picture": stack, "score": score})


def play(both, seed, still=False):
    times = timesteps(60, seed, still)
    both.call("add_first", next(times))
    for number, timestep in enumerate(times):
        both.call("add", np.full(ENVS, number % 3, np.int32), timestep)
    both.call("flush")


def assert_same(got, expected):
    tree.assert_same_structure(got, expected)
    tree.map_structure(np.testing.assert_array_equal, got, expected)


def check(replay, fields, seed, still):
    both = Plain(replay, fields)
    play(both, seed, still)
    rows, plain = np.concatenate(both.own.rows), np.concatenate(both.plain.rows)
    assert len(rows) > 20
    expected = both.layout.unpack(plain)
    assert_same(replay._layout.unpack(rows), expected)
    assert_same(jax.jit(replay._layout.unpack)(rows), expected)
    return rows.shape[1], plain.shape[1]


@pytest.mark.parametrize("still", [False, True])
@pytest.mark.parametrize(("n_step", "frames"), [(1, 5), (2, 6), (3, 7)])
def test_transitions_hold_each_frame_once(n_step, frames, still):
    replay = TransitionReplay(SPEC, batch_size=4, n_step=n_step)
    own, plain = check(replay, transition_spec(SPEC), n_step, still)
    assert plain - own == pytest.approx((2 * DEPTH - frames) * SIZE**2, abs=8)


@pytest.mark.parametrize("still", [False, True])
@pytest.mark.parametrize("burn_in", [0, 3])
def test_sequences_hold_each_frame_once(burn_in, still):
    replay = SequenceReplay(
        spec=SPEC, batch_size=4, length=20, period=8, burn_in=burn_in, discount=0.9, cross_episodes=False
    )
    own, plain = check(replay, sequence_spec(SPEC, 20), burn_in, still)
    assert plain - own == pytest.approx((21 * DEPTH - (20 + 3 * DEPTH)) * SIZE**2, abs=50)


@pytest.mark.parametrize(
    "replay",
    [
        TransitionReplay(SPEC, batch_size=4, n_step=DEPTH),  # no frame is in both observations
        TransitionReplay(SPEC, batch_size=4, keeps_one_step=True),
        SequenceReplay(spec=SPEC, batch_size=4, length=20, period=20, discount=0.9, cross_episodes=True),
        TransitionReplay(spec_of.discrete(3, (SIZE, SIZE, DEPTH), np.uint8), batch_size=4),
    ],
)
def test_where_it_saves_nothing_or_nothing_is_known_rows_are_plain(replay):
    assert type(replay._layout) is Layout


def test_what_is_no_stack_is_an_error():
    replay = TransitionReplay(SPEC, batch_size=4)
    assert type(replay._layout) is FrameLayout
    writer, times = replay.writer(Rows(), ENVS), timesteps(40, 0)
    writer.add_first(next(times))

    def write():
        for timestep in times:
            timestep.observation["picture"][..., 0] += 1
            writer.add(np.zeros(ENVS, np.int32), timestep)

    with pytest.raises(RunError, match="4 frames are the newest ones of its episode"):
        write()


@pytest.mark.parametrize("name", ["atari:Breakout", "envpool:Breakout-v5"])
def test_games_say_that_their_observations_are_stacks_and_keep_to_it(name):
    environment = envs.make(name, num_envs=2, seed=3)
    spec = envs.make_spec(environment)
    assert isinstance(spec.observations, StackedFrames)
    replay = TransitionReplay(spec, batch_size=2, n_step=2)
    both, rng = Plain(replay, transition_spec(spec), 2), np.random.default_rng(0)
    both.call("add_first", environment.reset())
    for _ in range(150):  # lives are lost in it
        action = rng.integers(0, spec.actions.num_values, 2).astype(spec.actions.dtype)
        both.call("add", action, environment.step(action))
    environment.close()
    rows, plain = np.concatenate(both.own.rows), np.concatenate(both.plain.rows)
    assert_same(replay.decode(rows), both.layout.unpack(plain))

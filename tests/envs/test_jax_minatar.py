"""Pgx's MinAtar games beside MinAtar's own: every step, with the same random draws, and the rules that differ."""

import importlib
from unittest import mock

import jax
import numpy as np
import pytest

from acme_ext.envs.jax_games import MinAtarGame
from acme_ext.envs.minatar import _game as original_game

NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


class Draws:
    """Stands for the original's random generator: returns the given values in turn."""

    def __init__(self, *values):
        self._values = list(values)

    def _next(self, *_, **__):
        return self._values.pop(0)

    rand = randint = _next


class Game:
    """A game of Pgx, as `jax:minatar-NAME` plays it."""

    def __init__(self, name):
        module = importlib.import_module(f"pgx.minatar.{name}")
        environment = MinAtarGame(name)
        pgx = environment._environment
        self.actions = np.asarray(pgx.minimal_action_set).tolist()

        def advance(state, action, key):
            def drawn(state, action, *args, **kwargs):
                return action, args, kwargs

            # What the step draws: the action, which may be a repeated one, and the game's own random numbers.
            with mock.patch.object(module, "_step_det", drawn):
                draws = module._step(state.inner, pgx.minimal_action_set[action], key, pgx.sticky_action_prob)
            return environment.move(key, state, action), draws

        self.begin, self.advance = jax.jit(environment.begin), jax.jit(advance)


def begin_likewise(name, original, state):
    """Starts the original's episode as the one of Pgx that begins in `state`."""
    if name == "breakout":
        original.random = Draws(int(state._ball_x > 0))
    elif name == "freeway":
        speeds = np.array(state._cars)[:, 3]
        original.random = Draws(abs(speeds), np.sign(speeds))
    original.reset()
    if name == "seaquest":
        original.ramp_index = 1  # see test_the_rules_of_seaquest_that_differ


def draw_likewise(name, original, args, kwargs):
    """Makes the original draw in its next step what Pgx draws."""
    if name == "freeway":
        original.random = Draws(kwargs["speeds"].copy(), kwargs["directions"])
    elif name == "asterix":
        free = [i for i, entity in enumerate(original.entities) if entity is None]
        slot = free.index(kwargs["slot"]) if free else None
        original.random = Draws(unit(kwargs["lr"]), unit(kwargs["is_gold"]), slot)
    elif name == "seaquest":
        from_left, is_submarine, row, diver_from_left, diver_row = args
        enemy = [unit(from_left), unit(is_submarine), int(row)] if original.e_spawn_timer == 0 else []
        original.random = Draws(*enemy, unit(diver_from_left), int(diver_row))


def unit(happens):
    """A number in [0, 1] that is below a probability if the event happens."""
    return 0.0 if happens else 1.0


def choose(name, original, rng):
    """An action with which episodes have everything in them: balls returned, roads crossed, divers saved."""
    if name == "breakout" and rng.random() < 0.97:
        ball = np.clip(original.ball_x + (1 if original.ball_dir in (1, 2) else -1), 0, 9)
        return NOTHING if original.pos == ball else LEFT if ball < original.pos else RIGHT
    if name == "freeway" and rng.random() < 0.9:
        return UP
    if name == "seaquest" and original.sub_y <= 1 and original.diver_count == 0:
        return DOWN
    return rng.choice(original.minimal_action_set())


def differs(name, original, state):
    """Whether the next step is one of those with another rule, see `test_the_rules_of_seaquest_that_differ`."""
    if name != "seaquest":
        return False
    bullets = np.asarray(state._e_bullets)
    return original.oxygen == 0 or np.any((bullets[:, 0] == -1) & (bullets[:, 1] != -1))


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        pytest.param("asterix", 500, marks=pytest.mark.release),
        ("breakout", 700),
        ("freeway", 700),
        pytest.param("seaquest", 1000, marks=pytest.mark.release),
        ("space_invaders", 500),
    ],
)
def test_every_step_is_minatars(name, steps):
    game, original, rng = Game(name), original_game(name).Env(), np.random.default_rng(1)
    assert game.actions == original.minimal_action_set()
    state, ends, rewards = None, 0, 0
    for key in jax.random.split(jax.random.key(1), steps):
        if state is None:
            state, observation = game.begin(key)
            begin_likewise(name, original, state.inner)
            np.testing.assert_array_equal(observation, original.state())
        action = game.actions.index(choose(name, original, rng))
        moved, (taken, args, kwargs) = jax.device_get(game.advance(state, action, key))
        draw_likewise(name, original, args, kwargs)
        reward, terminated = original.act(int(taken))
        assert (moved.reward, moved.terminated) == (reward, terminated)
        np.testing.assert_array_equal(moved.observation, original.state())
        state = None if terminated or differs(name, original, moved.state.inner) else moved.state
        ends, rewards = ends + terminated, rewards + reward
    assert rewards > 0
    assert ends > 2 or name == "freeway"  # its episodes have 2,500 steps


def test_the_rules_of_seaquest_that_differ():
    game, original, key = Game("seaquest"), original_game("seaquest").Env(), jax.random.key(0)
    first, _ = game.begin(key)

    def played(action, steps, sub_y, bullets=(), **fields):
        """Pgx's and the original's state after the same steps from a state with these values."""
        ours = np.full((25, 3), -1, np.int32)
        ours[: len(bullets)] = np.reshape(bullets, (-1, 3))
        same = {f"_{name}": np.int32(value) for name, value in fields.items()}
        state = first._replace(
            inner=first.inner.replace(_sub_y=np.int32(sub_y), _surface=np.False_, _e_bullets=ours, **same)
        )
        original.reset()
        original.sub_y, original.surface, original.e_bullets = sub_y, False, [list(bullet) for bullet in bullets]
        for name, value in fields.items():
            setattr(original, name, value)
        for _ in range(steps):
            state = game.advance(state, action, key)[0].state
            original.act(action)
        return state.inner, original

    # An episode ends in the step that begins with an oxygen of 0; in Pgx in the next.
    for steps, ended in ((1, (False, True)), (2, (True, True))):
        ours, theirs = played(NOTHING, steps, sub_y=4, oxygen=0)
        assert (bool(ours.terminated), theirs.terminal) == ended
    # Enemies get faster every second time that the player surfaces; in Pgx at the first, third, ..., not the second.
    for ramps, speeds in ((0, (4, 5)), (1, (5, 4))):
        ours, theirs = played(UP, 1, sub_y=1, diver_count=1, ramp_index=ramps)
        assert (int(ours._move_speed), theirs.move_speed) == speeds
    # In Pgx an enemy's bullet that leaves the screen on the left stops those that were fired after it.
    ours, theirs = played(NOTHING, 3, sub_y=4, bullets=[(0, 1, 0), (5, 8, 0)])
    assert theirs.e_bullets == [[2, 8, 0]]
    assert np.asarray(ours._e_bullets)[1].tolist() == [4, 8, 0]

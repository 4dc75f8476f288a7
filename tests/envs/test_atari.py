import ale_py
import cv2
import numpy as np
import pytest
from ale_py import roms

from acme_ext import envs
from acme_ext.envs.atari import AtariEnvironment
from acme_ext.types import FIRST, LAST, MID


class Reference:
    """The same preprocessing written plainly."""

    def __init__(self, game: str, seed: int):
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setInt("random_seed", seed)
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(roms.get_rom_path(game))
        self.rng = np.random.default_rng(seed)

    def _observe(self, screens: list[np.ndarray]) -> np.ndarray:
        pooled = np.max(screens, axis=0)
        self.pictures.append(cv2.resize(pooled, (84, 84), interpolation=cv2.INTER_AREA))
        blanks = [np.zeros((84, 84), np.uint8)] * 3
        return np.stack((blanks + self.pictures)[-4:], axis=-1)

    def reset(self) -> np.ndarray:
        self.ale.reset_game()
        for _ in range(self.rng.integers(1, 31)):
            self.ale.act(0)
        self.pictures: list[np.ndarray] = []
        return self._observe([self.ale.getScreenGrayscale()])

    def step(self, action: int) -> tuple[np.ndarray, int]:
        reward, screens = 0, []
        for _ in range(4):
            reward += self.ale.act(self.ale.getMinimalActionSet()[action])
            screens.append(self.ale.getScreenGrayscale())
        return self._observe(screens[-2:]), reward


def test_equals_the_preprocessing_written_plainly():
    environment, reference = AtariEnvironment("space_invaders", seed=4), Reference("space_invaders", 4)
    rng = np.random.default_rng(0)
    rewards = []
    for _ in range(2):
        np.testing.assert_array_equal(environment.reset().observation, reference.reset())
        for _ in range(90):
            action = int(rng.integers(6))
            timestep = environment.step(action)
            observation, reward = reference.step(action)
            np.testing.assert_array_equal(timestep.observation, observation)
            assert timestep.reward == reward
            rewards.append(reward)
    assert max(rewards) > 1  # The game's own points, not their sign.


def lose_lives(environment, steps=700):
    """Breakout: serve whenever there is no ball, and never move."""
    timesteps = [environment.reset()]
    while not timesteps[-1].last() and len(timesteps) < steps:
        timesteps.append(environment.step(np.int32(len(timesteps) % 2)))  # Fire every other step.
    return timesteps[1:]


def test_a_lost_life_is_a_termination_without_a_reset():
    training = lose_lives(envs.make_single("atari:Breakout", seed=0))
    lost = [t for t in training if t.discount == 0.0]
    assert [t.mid() for t in lost] == [True, True, True, True, False]  # Five lives; the last ends the game.
    assert training[-1].last()

    for environment in (
        envs.make_single("atari:Breakout", seed=0, life_loss=False),
        envs.make_single("atari:Breakout", seed=0, evaluation=True, life_loss=True),
    ):
        whole = lose_lives(environment)
        assert [t.discount == 0.0 for t in whole] == [False] * (len(whole) - 1) + [True]


def test_the_frame_limit_truncates(rollout):
    environment = AtariEnvironment("pong", seed=0, max_frames=100, noop_max=0)
    timesteps = [environment.reset()] + [environment.step(0) for _ in range(27)]
    assert [t.step_type for t in timesteps] == [FIRST] + [MID] * 24 + [LAST, FIRST, MID]
    assert timesteps[25].discount == 1.0
    assert environment.ale.getEpisodeFrameNumber() == 4


def test_noops_vary_the_beginning():
    environment = AtariEnvironment("pong", seed=0)
    frames = []
    for _ in range(40):
        environment.reset()
        frames.append(environment.ale.getEpisodeFrameNumber())
    assert min(frames) >= 1
    assert 20 < max(frames) <= 30
    assert len(set(frames)) > 10


def test_sticky_actions_repeat_the_last_one():
    def paddle(sticky: float) -> np.ndarray:
        environment = AtariEnvironment("pong", seed=0, noop_max=0, sticky_actions=sticky)
        environment.reset()
        for _ in range(20):
            timestep = environment.step(2)
        return timestep.observation

    assert not np.array_equal(paddle(0.0), paddle(1.0))
    np.testing.assert_array_equal(paddle(0.0), paddle(0.0))


@pytest.mark.parametrize(("full", "actions"), [(False, 6), (True, 18)])
def test_action_sets(full, actions):
    assert envs.make_single("atari:Pong", full_action_set=full).action_spec().num_values == actions

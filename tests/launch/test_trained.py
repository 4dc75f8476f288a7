import dataclasses
import importlib

import gymnasium
import gymnasium_loop
import numpy as np
import pytest
import saved_runs
from dm_env import specs
from toys import Walk

from acme_ext import envs, launch
from acme_ext.builders import DQN, R2D2, TD3
from acme_ext.commands import cli
from acme_ext.envs import pictures
from acme_ext.errors import RunError, UsageError


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return saved_runs.save(tmp_path_factory.mktemp("cartpole") / "run", DQN(), "gym:CartPole-v1")


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    return saved_runs.save(tmp_path_factory.mktemp("recurrent") / "run", R2D2(), "bsuite:catch/0")


def test_one_observation_or_a_batch_of_any_precision(cartpole):
    run = launch.load(cartpole)
    observations = np.random.default_rng(0).normal(size=(16, 4))
    actions = run.policy(observations)
    assert actions.shape == (16,)
    assert len(set(actions.tolist())) == 2
    assert [int(run.policy(row)) for row in observations] == actions.tolist()
    assert gymnasium.make("CartPole-v1").action_space.contains(run.policy(list(observations[0])))
    action, state = run.policy(observations[0], None)  # an agent without a memory may be called as one with
    assert run.policy(observations[0], state, first=False)[0] == action


def test_exploring_is_as_in_training(cartpole):
    """At step 100 epsilon is near 1, and in evaluation 0."""
    run = launch.load(cartpole)
    same = np.zeros((400, 4))
    assert len(set(run.policy(same).tolist())) == 1
    assert 100 < run.policy(same, explore=True).sum() < 300


def test_the_plain_loop_plays_as_the_run_evaluates(cartpole):
    run = launch.load(cartpole)
    score = run.evaluate(episodes=3)
    np.testing.assert_array_equal(score.returns, launch.load(cartpole).evaluate(3).returns)
    with pytest.raises(UsageError, match="episodes is 0: it must be at least 1"):
        run.evaluate(0)
    explored = run.evaluate(3, explore=True)
    np.testing.assert_array_equal(explored.returns, launch.load(cartpole).evaluate(3, explore=True).returns)
    assert explored.returns.tolist() != score.returns.tolist()
    returns = gymnasium_loop.play(cartpole, "CartPole-v1", episodes=2)
    assert all(5 <= total <= 500 for total in returns)


@pytest.mark.release
def test_continuous_actions_have_the_environments_bounds(tmp_path):
    run = launch.load(saved_runs.save(tmp_path / "run", TD3(), "gym:Pendulum-v1"))
    observations = np.random.default_rng(0).normal(size=(64, 3)) * 3
    actions = run.policy(observations, explore=True)
    assert actions.shape == (64, 1)
    assert actions.dtype == np.float32
    assert 1 < np.abs(actions).max() <= 2


def test_the_memory_is_a_state_that_begins_anew_where_it_is_told(recurrent):
    run = launch.load(recurrent)
    frames = np.random.default_rng(0).random((6, 3, 10, 5))
    state, states = None, []
    for frame in frames:
        _, state = run.policy(frame, state, reward=np.ones(3))
        states.append(state)
    # The second row begins at the fourth frame: it is then as if the first three had not been.
    _, begun = run.policy(frames[3], states[2], reward=np.ones(3), first=[False, True, False])
    _, alone = run.policy(frames[3, 1], None)
    for mixed, new, old in zip(*(map(np.asarray, _leaves(s)) for s in (begun, alone, states[3])), strict=True):
        np.testing.assert_allclose(mixed[1], new[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mixed[0], old[0], rtol=1e-5, atol=1e-6)
    changed = [np.abs(np.asarray(new)[1] - np.asarray(old)[1]).max() for new, old in _pairs(begun, states[3])]
    assert max(changed) > 1e-4


def _pairs(a, b):
    return zip(_leaves(a), _leaves(b), strict=True)


def _leaves(state):
    import jax

    return jax.tree.leaves(state)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda policy: policy(np.zeros((10, 5))), "has a memory: give it a state"),
        (lambda policy: policy(np.zeros((10, 5)), policy(np.zeros((10, 5)), None)[1]), "the last reward as an input"),
        (lambda policy: policy(np.zeros((10, 4)), None), r"\[10, 4\] was given: \[10, 5\] is one .* \[B, 10, 5\]"),
        (lambda policy: policy(np.zeros((2, 2, 10, 5)), None), r"\[B, 10, 5\] are several"),
        (lambda policy: policy({"a": "b"}, None), "not of the environment's spec"),
    ],
)
def test_what_a_policy_lacks_is_said(recurrent, call, message):
    with pytest.raises(UsageError, match=message):
        call(launch.load(recurrent).policy)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gym:CartPole-v1", (400, 600)),
        ("minatar:breakout", (160, 160)),
        ("minigrid:Empty-5x5", (160, 160)),
        ("atari:Pong", (210, 160)),
        ("bsuite:catch/0", (320, 160)),
    ],
)
def test_each_family_that_renders_gives_pictures_that_change(name, shape):
    environment = envs.make_single(name, seed=0, evaluation=True)
    timestep, seen = environment.reset(), []
    for _ in range(40):
        seen.append(pictures.picture(environment, timestep.observation))
        timestep = environment.step(0)
    environment.close()
    assert {picture.shape for picture in seen} == {(*shape, 3)}
    assert seen[0].dtype == np.uint8
    assert seen[0].min() < seen[0].max()
    assert any((seen[0] != picture).any() for picture in seen[1:])
    assert pictures.frames_per_second(environment) > 0


@pytest.mark.parametrize(("shape", "dtype"), [((11, 11, 4), np.bool_), ((10, 10, 4), np.float32)])
def test_the_last_plane_of_a_board_is_no_picture(shape, dtype):
    class Board(Walk):
        def observation_spec(self):
            return specs.BoundedArray(shape, dtype, 0, 1)

    with pytest.raises(UsageError, match="the environment can't be drawn"):
        pictures.picture(Board(0), np.ones(shape, dtype))


def test_of_a_stack_of_pictures_the_newest_is_shown():
    class Stacked(Walk):
        def observation_spec(self):
            return specs.BoundedArray((160, 160, 4), np.float32, 0.0, 1.0)

    seen = np.zeros((160, 160, 4), np.float32)
    seen[..., -1] = 1.0
    assert pictures.picture(Stacked(0), seen).min() == 255


@pytest.mark.release
def test_videos_are_written_whole_or_not_at_all(cartpole, tmp_path, capsys):
    videos = [tmp_path / "video.mp4", tmp_path / "video.gif"]
    for video in videos:
        assert cli.main(["evaluate", str(cartpole), "--episodes", "1", "--video", str(video)]) == 0
        assert f"video       {video}" in capsys.readouterr().out
    with importlib.import_module("PIL.Image").open(videos[1]) as video:
        assert video.size == (600, 400)
        assert video.n_frames > 20
    frames = importlib.import_module("imageio_ffmpeg").read_frames(str(videos[0]))
    about = next(frames)
    assert (about["size"], about["codec"], about["fps"]) == ((600, 400), "h264", 50.0)
    assert sum(1 for _ in frames) > 20
    assert sorted(tmp_path.iterdir()) == sorted(videos)


def test_a_video_shows_the_exploration_if_asked(cartpole, tmp_path, monkeypatch):
    from acme_ext.utils import videos

    lengths = []
    monkeypatch.setattr(videos, "write", lambda path, frames, fps: lengths.append(len(list(frames))))
    run = launch.load(cartpole)
    for explore in (False, True, False):
        run.video(tmp_path / "video.gif", episodes=1, explore=explore)
    assert lengths[0] == lengths[2] != lengths[1]


def test_a_video_that_ffmpeg_could_not_end_keeps_the_one_before(tmp_path, monkeypatch):
    from acme_ext.utils import videos

    pictures = [np.full((16, 16, 3), i, np.uint8) for i in range(5)]
    videos.write(tmp_path / "video.mp4", iter(pictures), 25)
    before = (tmp_path / "video.mp4").read_bytes()
    monkeypatch.setattr(importlib.import_module("imageio_ffmpeg"), "count_frames_and_secs", lambda path: (3, 0.12))
    with pytest.raises(RunError, match=r"video\.mp4 can't be written: ffmpeg ended early; the disk may be full"):
        videos.write(tmp_path / "video.mp4", iter(pictures), 25)
    assert (tmp_path / "video.mp4").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["video.mp4"]


def test_videos_that_cant_be_are_refused(cartpole, tmp_path, capsys):
    assert cli.main(["evaluate", str(cartpole), "--video", str(tmp_path / "video.avi")]) == 2
    assert "it must end in .mp4 or .gif" in capsys.readouterr().err
    blind = saved_runs.save(tmp_path / "run", DQN(), "bsuite:cartpole/0")
    assert cli.main(["evaluate", str(blind), "--video", str(tmp_path / "video.gif")]) == 2
    assert "bsuite:cartpole/0: the environment can't be drawn" in capsys.readouterr().err
    assert not (tmp_path / "video.gif").exists()


def test_an_environment_of_ones_own_draws_itself():
    @dataclasses.dataclass
    class Drawn(Walk):
        shape: tuple[int, ...] = (8, 8, 3)
        render_fps = 25

        def __post_init__(self):
            super().__init__(0)

        def render(self):
            return np.full(self.shape, 7, np.uint8)

    environment = Drawn()
    assert pictures.picture(environment, None).shape == (160, 160, 3)
    assert pictures.frames_per_second(environment) == 25
    with pytest.raises(UsageError, match=r"Drawn gives pictures uint8 \[8, 8, 4\]"):
        pictures.picture(Drawn((8, 8, 4)), None)

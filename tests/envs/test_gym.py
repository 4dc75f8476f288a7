import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from acme_ext import envs
from acme_ext.envs.gym import GymEnvironment, GymVectorEnvironment
from acme_ext.envs.vector import VectorEnvironment
from acme_ext.errors import RunError, UsageError
from acme_ext.types import FIRST, LAST, MID


def test_cartpole_of_many_is_gymnasiums_own():
    assert isinstance(envs.make("gym:CartPole-v1", num_envs=2), GymVectorEnvironment)
    assert isinstance(envs.make("gym:CartPole-v1", num_envs=1), VectorEnvironment)
    assert isinstance(envs.make("gym:Acrobot-v1", num_envs=2), VectorEnvironment)


def test_native_rows_follow_the_single_environments_dynamics():
    batch = envs.make("gym:CartPole-v1", num_envs=6, seed=0)
    assert isinstance(batch, GymVectorEnvironment)
    single = gymnasium.make("CartPole-v1").unwrapped
    rng = np.random.default_rng(0)
    timestep = batch.reset()
    stepped = 0
    for _ in range(120):
        states = batch.vector.unwrapped.state.copy()
        before, actions = timestep, rng.integers(0, 2, 6)
        timestep = batch.step(actions)
        for row in np.flatnonzero(before.step_type != LAST):
            single.reset()
            single.state = states[:, row]
            observation, reward, terminated, _, _ = single.step(int(actions[row]))
            np.testing.assert_allclose(timestep.observation[row], observation, rtol=1e-6)
            assert timestep.reward[row] == reward
            assert timestep.discount[row] == 1.0 - terminated
            assert timestep.step_type[row] == (LAST if terminated else MID)
            stepped += 1
    assert 600 < stepped < 720  # Some rows were reset on the way.


def test_vector_environments_that_reset_otherwise_are_refused():
    sync = gymnasium.make_vec(
        "CartPole-v1",
        2,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )
    with pytest.raises(ValueError, match="NEXT_STEP"):
        GymVectorEnvironment(sync)


@pytest.mark.parametrize("num_envs", [1, 4])
def test_a_time_limit_truncates_and_a_fall_terminates(num_envs, rollout):
    kwargs = {"num_envs": num_envs, "seed": 0}
    with envs.make("gym:CartPole-v1", max_episode_steps=5, **kwargs) as environment:
        timesteps = rollout(environment, 12)
    for t in (5, 11):  # The sixth step resets.
        assert (timesteps[t].step_type == LAST).all()
        assert (timesteps[t].discount == 1.0).all()
        assert (timesteps[t].reward == 1.0).all()
        assert (timesteps[t - 1].step_type == MID).all()
    assert (timesteps[6].step_type == FIRST).all()

    with envs.make("gym:CartPole-v1", **kwargs) as environment:
        timesteps = rollout(environment, 30, actions=lambda t: np.zeros(num_envs, np.int32))
    ends = [(t.discount[row], t.reward[row]) for t in timesteps for row in np.flatnonzero(t.step_type == LAST)]
    assert len(ends) >= 2 * num_envs
    assert set(ends) == {(0.0, 1.0)}


def test_the_registered_time_limit_is_kept(rollout):
    with envs.make("gym:Pendulum-v1") as environment:
        timesteps = rollout(environment, 200)
    assert [t.step_type[0] for t in timesteps[1:]] == [MID] * 199 + [LAST]
    assert timesteps[-1].discount[0] == 1.0


@pytest.mark.parametrize("num_envs", [1, 2])
def test_none_is_no_time_limit(num_envs, rollout):
    with envs.make("gym:MountainCar-v0", num_envs=num_envs, max_episode_steps=None) as environment:
        timesteps = rollout(environment, 210, actions=lambda t: np.ones(num_envs, np.int32))
    assert all((timestep.step_type == MID).all() for timestep in timesteps[1:])  # registered are 200 steps
    with pytest.raises(UsageError, match="must be true or false"):
        envs.check_environment("gym:CartPole-v1", sutton_barto_reward=None)


def test_without_a_time_limit_cartpole_of_many_is_not_gymnasiums_own():
    with envs.make("gym:CartPole-v1", num_envs=2, max_episode_steps=None) as environment:
        assert isinstance(environment, VectorEnvironment)


def test_nothing_that_only_checks_is_wrapped_around():
    environment = envs.make_single("gym:CartPole-v1")
    assert isinstance(environment, GymEnvironment)
    assert environment.environment is environment.environment.unwrapped


def test_constructor_arguments_are_options(rollout):
    for num_envs in (1, 2):
        with envs.make("gym:CartPole-v1", num_envs=num_envs, sutton_barto_reward=True) as environment:
            timesteps = rollout(environment, 30, actions=lambda t, n=num_envs: np.zeros(n, np.int32))
        for timestep in timesteps:
            np.testing.assert_array_equal(timestep.reward, np.where(timestep.discount == 0.0, -1.0, 0.0))


class Everything(gymnasium.Env):
    """All supported spaces; echoes its action, in the dtypes of its spaces."""

    observation_space = spaces.Dict(
        {
            "box": spaces.Box(-1.0, 1.0, (2,), np.float64),
            "picture": spaces.Box(0, 255, (3, 3), np.uint8),
            "pair": spaces.Tuple((spaces.Discrete(3, start=5), spaces.MultiBinary(4))),
            "many": spaces.MultiDiscrete([2, 7]),
        }
    )

    def __init__(self, action_space: spaces.Space):
        self.action_space = action_space
        self.action = None

    def _observation(self):
        return {
            "box": np.array([0.25, -1.0]),
            "picture": np.full((3, 3), 255, np.uint8),
            "pair": (np.int64(7), np.ones(4, np.int8)),
            "many": np.array([1, 6]),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.action = action
        return self._observation(), 1, False, False, {}


def test_nests_of_spaces_become_nests_of_specs(rollout):
    batch = VectorEnvironment([GymEnvironment(Everything(spaces.Discrete(2))) for _ in range(2)])
    timesteps = rollout(batch, 3)
    assert batch.observation_spec() == {
        "box": specs.BoundedArray((2,), np.float32, -1.0, 1.0),
        "picture": specs.BoundedArray((3, 3), np.uint8, 0, 255),
        "pair": (specs.BoundedArray((3,), np.bool_, False, True), specs.BoundedArray((4,), np.int32, 0, 1)),
        "many": specs.BoundedArray((9,), np.bool_, False, True),
    }
    # Numbers are one-hot: 7 of 5, 6 and 7; 1 of 2 and 6 of 7.
    assert timesteps[-1].observation["pair"][0].tolist() == [[0, 0, 1]] * 2
    assert timesteps[-1].observation["many"].tolist() == [[0, 1, 0, 0, 0, 0, 0, 0, 1]] * 2


def test_fields_of_the_rules_stay_numbers():
    inner = Everything(spaces.Discrete(2))
    inner.observation_space = spaces.Dict(
        {"seen": spaces.Discrete(3), "player": spaces.Discrete(2), "action_mask": spaces.MultiBinary(2)}
    )
    assert GymEnvironment(inner).observation_spec() == {
        "seen": specs.BoundedArray((3,), np.bool_, False, True),
        "player": specs.DiscreteArray(2, np.int32),
        "action_mask": specs.BoundedArray((2,), np.int32, 0, 1),
    }


class Given(gymnasium.Env):
    """Delivers one observation in a space, whether it fits or not."""

    def __init__(self, space, observation):
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self._observation = observation

    def reset(self, seed=None, options=None):
        return self._observation, {}

    def step(self, action):
        return self._observation, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "observation", "told"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), np.array([0.7, 3.0]), "the type float64; its space says uint8"),
        (spaces.Box(0, 255, (40, 40), np.uint8), np.full((40, 40), 0.7), "the type float64; its space says uint8"),
        (spaces.Box(-9, 9, (2,), np.int32), np.array([np.nan, 2.9]), "the type float64; its space says int32"),
        (spaces.Discrete(4), 4, "numbers outside its space"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "numbers outside its space"),
    ],
)
def test_numbers_that_their_space_can_not_hold_are_told(space, observation, told):
    with pytest.raises(RunError, match=f"the observation 'observation' has .*{told}"):
        GymEnvironment(Given(space, observation), seed=0).reset()


def test_only_the_rules_of_a_board_game_stay_numbers():
    player = {"player": spaces.Discrete(4), "x": spaces.Box(-1, 1, (2,))}
    observation = {"player": 3, "x": np.zeros(2, np.float32)}
    seen = GymEnvironment(Given(spaces.Dict(player), observation), seed=0).reset().observation
    assert seen["player"].tolist() == [False, False, False, True]
    nested = spaces.Dict({"inner": spaces.Dict(player), "action_mask": spaces.MultiBinary(2)})
    observation = {"inner": observation, "action_mask": np.ones(2, np.int8)}
    seen = GymEnvironment(Given(nested, observation), seed=0).reset().observation
    assert seen["inner"]["player"].tolist() == [False, False, False, True]


def test_a_table_of_discrete_numbers_becomes_one_one_hot_vector():
    space = spaces.MultiDiscrete(np.array([[2, 3], [2, 2]]))
    environment = GymEnvironment(Given(space, np.array([[1, 2], [0, 1]])), seed=0)
    assert environment.observation_spec().shape == (9,)
    assert np.flatnonzero(environment.reset().observation).tolist() == [1, 4, 5, 8]


@pytest.mark.parametrize(
    ("shape", "delivered"),
    [
        ((4, 84, 80), (84, 80, 4)),  # as gymnasium's own stacks of frames are
        ((84, 80), (84, 80, 1)),
        ((84, 80, 3), (84, 80, 3)),
        ((31, 80), (31, 80)),  # a small board is no picture
        ((5, 5, 8), (5, 5, 8)),  # nor is a small grid, here with more channels than cells in a row
    ],
)
def test_pictures_have_their_channels_last(rollout, shape, delivered):
    pictures = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)

    class Pictures(gymnasium.Env):
        observation_space = spaces.Box(0, 255, shape, np.uint8)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return pictures, {}

        def step(self, action):
            return pictures, 0.0, False, False, {}

    batch = VectorEnvironment([GymEnvironment(Pictures()) for _ in range(2)])
    timestep = rollout(batch, 2)[-1]
    assert batch.observation_spec() == specs.BoundedArray(delivered, np.uint8, 0, 255)
    expected = np.moveaxis(pictures, 0, -1) if shape[0] == 4 else pictures.reshape(delivered)
    for row in timestep.observation:
        np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize(
    ("space", "action", "received"),
    [
        (spaces.Discrete(3, start=-1), np.int32(0), -1),
        (spaces.Box(-2.0, 2.0, (2,), np.float64), np.array([1.5, -2.0], np.float32), [1.5, -2.0]),
        (spaces.MultiDiscrete([2, 3], start=[4, 0]), np.array([1, 2], np.int32), [5, 2]),
        (spaces.MultiBinary(2), np.array([0, 1], np.int32), [0, 1]),
    ],
)
def test_actions_arrive_in_their_space(space, action, received):
    inner = Everything(space)
    environment = GymEnvironment(inner)
    environment.action_spec().validate(action)
    environment.reset()
    environment.step(action)
    np.testing.assert_array_equal(inner.action, received)


def test_unsupported_spaces_are_told():
    with pytest.raises(UsageError, match="action space Dict is not supported; Box, Discrete"):
        GymEnvironment(Everything(spaces.Dict({"a": spaces.Discrete(2)})))
    inner = Everything(spaces.Discrete(2))
    inner.observation_space = spaces.Dict({"words": spaces.Text(5)})
    with pytest.raises(UsageError, match="words space Text is not supported"):
        GymEnvironment(inner)


def test_a_module_can_register_environments_of_its_own(tmp_path, monkeypatch, rollout):
    (tmp_path / "registers_itself.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Short-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=4)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with envs.make("gym:registers_itself:Short-v0", num_envs=2) as environment:
            timesteps = rollout(environment, 4)
    finally:
        gymnasium.registry.pop("Short-v0", None)
    assert (timesteps[-1].step_type == LAST).all()
    assert (timesteps[-1].discount == 1.0).all()


def test_a_name_that_a_module_does_not_register_is_told_with_one_that_it_does(tmp_path, monkeypatch):
    (tmp_path / "registers_one.py").write_text("import gymnasium\ngymnasium.register('Slope-v0', lambda: None)\n")
    (tmp_path / "registers_none.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        for _ in range(2):  # the second time it has been imported
            with pytest.raises(
                UsageError, match=r"'gym:registers_one:Slope-v1'; did you mean 'gym:registers_one:Slope-v0'\?"
            ):
                envs.check_environment("gym:registers_one:Slope-v1")
    finally:
        gymnasium.registry.pop("Slope-v0", None)
    with pytest.raises(UsageError, match=r"no environment 'gym:registers_none:CartPol-v1'; there is none\."):
        envs.check_environment("gym:registers_none:CartPol-v1")


class Wrong(gymnasium.Env):
    """Delivers in its first step what it is given."""

    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(2)

    def __init__(self, observation, reward):
        self.delivered = observation, reward

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return *self.delivered, False, False, {}


@pytest.mark.parametrize(
    ("observation", "reward", "told"),
    [
        (np.zeros(3), float("nan"), "a reward of nan"),
        (np.zeros(3), None, "a reward of None"),
        (np.zeros(3), np.zeros(2), r"a reward of array\("),
        (np.zeros(3), "1 point", "a reward of '1 point'"),
        (np.zeros(2), 0.0, r"an observation of shape \(2,\) and type float32; its spec says float32 of shape \(3,\)"),
        (np.full(3, np.nan), 0.0, r"an observation of nan at \[0\] \(in environment 0 of 1\); its spec says float32"),
        (None, 0.0, "an observation of array"),
        ({"x": np.zeros(3)}, 0.0, "an observation of"),
        ([[0.0], [0.0, 1.0]], 0.0, "an observation of"),
    ],
)
def test_what_is_not_as_the_spaces_say_is_told_by_environment_and_field(monkeypatch, observation, reward, told):
    monkeypatch.setitem(
        gymnasium.registry,
        "Wrong-v0",
        gymnasium.envs.registration.EnvSpec("Wrong-v0", lambda: Wrong(observation, reward), order_enforce=False),
    )
    with envs.make("gym:Wrong-v0") as environment:
        environment.reset()
        with pytest.raises(RunError, match=f"^gym:Wrong-v0 delivered {told}"):
            environment.step(np.zeros(1, np.int32))


@pytest.mark.parametrize("given", [((1.0, 2.0), 3), [[1.0, 2.0], 3]])
def test_lists_for_an_option_that_is_a_tuple_become_tuples(monkeypatch, given):
    goals = []

    class Goal(Wrong):
        def __init__(self, goal=((0.0, 0.0), 1)):
            super().__init__(np.zeros(3), 0.0)
            goals.append(goal)

    monkeypatch.setitem(gymnasium.registry, "Goal-v0", gymnasium.envs.registration.EnvSpec("Goal-v0", Goal))
    envs.check_environment("gym:Goal-v0", goal=given)
    envs.make("gym:Goal-v0", num_envs=2, goal=given).close()
    envs.make_single("gym:Goal-v0", goal=given).close()
    assert goals == [((1.0, 2.0), 3)] * 3
    with pytest.raises(UsageError, match="must be a list"):
        envs.check_environment("gym:Goal-v0", goal=3)


def test_a_native_batch_is_held_to_its_specs_too():
    batch = GymVectorEnvironment(gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point"))
    batch.reset()
    batch.vector.state[2, 1] = np.nan
    with pytest.raises(RunError, match=r"delivered an observation of nan at \[\d\] \(in environment 1 of 3\)"):
        batch.step(np.zeros(3, np.int32))


def test_a_missing_backend_of_gymnasiums_is_one_sentence(monkeypatch):
    def fail(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed.")

    monkeypatch.setattr(gymnasium, "make", fail)
    with pytest.raises(UsageError, match=r"gymnasium can't make 'CartPole-v1': Box2D is not installed\."):
        envs.make("gym:CartPole-v1")

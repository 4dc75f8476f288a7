import numpy as np
import pytest

from acme_ext import envs
from acme_ext.types import FIRST, LAST, MID


def test_catch_ends_by_termination_after_nine_steps(rollout):
    with envs.make("bsuite:catch/0", num_envs=4) as environment:
        timesteps = rollout(environment, 20)
    assert [t.step_type[0] for t in timesteps[:11]] == [FIRST] + [MID] * 8 + [LAST, FIRST]
    np.testing.assert_array_equal(timesteps[9].discount, np.zeros(4))
    assert set(np.concatenate([t.reward for t in timesteps if (t.step_type == LAST).all()])) <= {-1.0, 1.0}
    # The balls fall in columns of their own.
    columns = np.concatenate([t.observation[:, 0].argmax(-1) for t in timesteps if (t.step_type == FIRST).all()])
    assert len(set(columns)) > 1


@pytest.mark.parametrize(
    "name", ["memory_len/3", "umbrella_distract/2", "cartpole_swingup/0", "mountain_car_noise/1", "bandit/0"]
)
def test_experiments_repeat_by_seed(name, rollout, same):
    runs = []
    for seed in (1, 1, 2):
        with envs.make(f"bsuite:{name}", num_envs=2, seed=seed) as environment:
            runs.append(rollout(environment, 20))
    assert same(runs[0], runs[1])
    if name != "bandit/0":  # Its arms are part of the experiment, and nothing else in it is random.
        assert not same(runs[0], runs[2])


def test_what_belongs_to_the_experiment_does_not_depend_on_the_seed():
    mappings = [envs.make_single("bsuite:deep_sea/0", seed=s).environment._action_mapping for s in (0, 1)]
    np.testing.assert_array_equal(*mappings)


def test_nothing_is_printed_or_written(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environment = envs.make_single("bsuite:catch/0")
    for _ in range(12):
        environment.step(0)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""
    assert not list(tmp_path.iterdir())


def test_data_that_can_not_be_fetched_is_one_sentence(monkeypatch):
    from bsuite.utils import datasets

    from acme_ext.errors import UsageError

    def fail(*_):
        raise OSError("no network")

    monkeypatch.setattr(datasets, "load_mnist", fail)
    with pytest.raises(UsageError, match=r"bsuite can't load the data of 'mnist/0': no network\."):
        envs.make("bsuite:mnist/0")

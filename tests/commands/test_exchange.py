"""Recorded data in the formats of others, there and back."""

import functools

import h5py
import numpy as np
import pytest
import tree

from acme_ext import envs
from acme_ext.commands import cli, exchange
from acme_ext.config.values import describe_value
from acme_ext.data.format import Episode, Folder, FolderWriter
from acme_ext.errors import UsageError

PENDULUM, CARTPOLE = "gym:Pendulum-v1", "gym:CartPole-v1"


def record(path, environment, lengths=(5, 1, 3), terminal=(False, True, True)):
    """A folder of made-up episodes with an environment's specs."""
    units = exchange._scale(environment, {})
    about = {"environment": environment, "environment_options": {}, "agent": "sac", "config": {}, "seed": 0}
    writer, rng = FolderWriter(path, units.spec, about), np.random.default_rng(0)
    for length, ends in zip(lengths, terminal, strict=True):
        shape = units.spec.observations.shape
        observation = rng.uniform(-1, 1, (length + 1, *shape)).astype(np.float32)
        if environment == CARTPOLE:
            action = rng.integers(0, 2, length + 1).astype(units.spec.actions.dtype)
        else:
            action = rng.uniform(-1, 1, (length + 1, 1)).astype(np.float32)
        reward, discount = rng.normal(size=length + 1).astype(np.float32), np.ones(length + 1, np.float32)
        action[-1], reward[0], discount[-1] = 0, 0, 0 if ends else 1
        writer.add(Episode(observation, action, reward, discount, np.array([0, *[1] * (length - 1), 2], np.uint8)))
    writer.close()
    return Folder(path)


def same(there, here):
    """Holds two folders to be the same up to rounding."""
    for a, b in zip(there.episodes(), here.episodes(), strict=True):
        for x, y in zip(tree.flatten(a), tree.flatten(b), strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, atol=1e-6)
    assert there.manifest["spec"] == here.manifest["spec"]


@pytest.mark.parametrize("environment", [PENDULUM, CARTPOLE])
def test_minari_reads_what_is_written_and_gives_it_back(tmp_path, monkeypatch, capsys, environment):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    folder = record(tmp_path / "mine", environment)
    assert cli.main(["data", str(folder.path), "--to", "minari:test/made-v0"]) == 0
    assert capsys.readouterr().out.strip() == "minari:test/made-v0: 9 steps in 3 episodes"

    dataset = minari.load_dataset("test/made-v0")
    theirs, ours = list(dataset.iterate_episodes()), list(folder.episodes())
    for there, here in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(there.observations, here.observation)
        scale = 2.0 if environment == PENDULUM else 1  # Pendulum's torques are in [-2, 2]
        np.testing.assert_allclose(there.actions, scale * here.action[:-1], rtol=1e-6)
        np.testing.assert_allclose(there.rewards, here.reward[1:])
        assert bool(there.terminations[-1]) == (here.discount[-1] == 0) == (not there.truncations[-1])
        assert not there.terminations[:-1].any()
        assert not there.truncations[:-1].any()

    assert cli.main(["data", "minari:test/made-v0", "--to", str(tmp_path / "back")]) == 0
    back = Folder(tmp_path / "back")
    same(folder, back)
    assert back.manifest["environment"] == environment
    assert cli.main(["data", str(back.path)]) == 0
    assert "taken from minari:test/made-v0" in capsys.readouterr().out


def test_a_data_set_that_minari_made_is_taken_in(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    import gymnasium

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    collector = minari.DataCollector(gymnasium.make("CartPole-v1", max_episode_steps=8))
    lengths = []
    for seed in range(4):
        collector.reset(seed=seed)
        collector.action_space.seed(seed)
        steps, over = 0, False
        while not over:
            *_, terminated, truncated, _ = collector.step(collector.action_space.sample())
            steps, over = steps + 1, terminated or truncated
        lengths.append(steps)
    collector.create_dataset("test/theirs-v0")
    exchange.convert("minari:test/theirs-v0", str(tmp_path / "folder"))
    folder = Folder(tmp_path / "folder")
    assert [episode.steps for episode in folder.episodes()] == lengths
    assert folder.returns.tolist() == lengths
    assert folder.manifest["environment"] == CARTPOLE
    assert [episode.discount[-1] for episode in folder.episodes()] == [float(n == 8) for n in lengths]


@pytest.mark.parametrize("environment", [PENDULUM, CARTPOLE])
def test_a_file_of_d4rl_is_written_and_gives_it_back(tmp_path, environment, capsys):
    folder, path = record(tmp_path / "mine", environment), tmp_path / "x/file.hdf5"
    assert cli.main(["data", str(folder.path), "--to", f"d4rl:{path}"]) == 0
    with h5py.File(path) as file:
        assert {name: len(file[name]) for name in file} == dict.fromkeys(file, 9)
        assert np.flatnonzero(file["terminals"]).tolist() == [5, 8]
        assert np.flatnonzero(file["timeouts"]).tolist() == [4]
        if environment == PENDULUM:
            assert 1 < np.abs(file["actions"]).max() <= 2
    back = tmp_path / "back"
    assert cli.main(["data", f"d4rl:{path}", "--to", str(back)]) == 2
    assert "doesn't name its environment: give it with --environment" in capsys.readouterr().err
    assert cli.main(["data", f"d4rl:{path}", "--to", str(back), "--environment", environment]) == 0
    same(folder, Folder(back))
    assert cli.main(["data", f"d4rl:{path}", "--to", str(back), "--environment", environment]) == 2
    assert "back holds recorded data already: choose another folder" in capsys.readouterr().err
    same(folder, Folder(back))


def make_pendulum(seed, evaluation):
    return envs.make_single(PENDULUM, seed=seed, evaluation=evaluation)


def test_data_of_an_environment_that_is_no_plain_name_is_given_back(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    described = describe_value(functools.partial(make_pendulum), "the environment")
    folder = record(tmp_path / "mine", described)
    exchange.convert(str(folder.path), "minari:test/partial-v0")
    exchange.convert("minari:test/partial-v0", str(tmp_path / "back"))
    same(folder, Folder(tmp_path / "back"))
    assert Folder(tmp_path / "back").manifest["environment"] == described


def test_without_h5py_it_says_how_to_install_it(tmp_path, monkeypatch):
    source, find = str(record(tmp_path / "mine", PENDULUM).path), exchange.importlib.util.find_spec
    monkeypatch.setattr(exchange.importlib.util, "find_spec", lambda name: None if name == "h5py" else find(name))
    with pytest.raises(UsageError, match=r"need h5py, not installed here: .*minari"):
        exchange.convert(source, f"d4rl:{tmp_path / 'x.hdf5'}")
    (tmp_path / "y.hdf5").touch()
    with pytest.raises(UsageError, match="need h5py"):
        exchange.convert(f"d4rl:{tmp_path / 'y.hdf5'}", str(tmp_path / "y"), PENDULUM)


def test_a_conversion_that_stops_leaves_no_part_of_the_data(tmp_path, monkeypatch):
    given = (f"d4rl:{tmp_path / 'file.hdf5'}", str(tmp_path / "back"), PENDULUM)
    folder = record(tmp_path / "mine", PENDULUM)
    exchange.convert(str(folder.path), given[0])

    def flush_and_stop(writer):
        writer.flush()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FolderWriter, "close", flush_and_stop)
        with pytest.raises(KeyboardInterrupt):
            exchange.convert(*given)
    assert list((tmp_path / "back").iterdir()) == []
    exchange.convert(*given)
    same(folder, Folder(tmp_path / "back"))


def test_a_file_without_next_observations_loses_the_last_step_of_a_time_limit(tmp_path):
    folder, path = record(tmp_path / "mine", PENDULUM), tmp_path / "file.hdf5"
    exchange.convert(str(folder.path), f"d4rl:{path}")
    with h5py.File(path, "r+") as file:
        del file["next_observations"]
    exchange.convert(f"d4rl:{path}", str(tmp_path / "back"), PENDULUM)
    mine, back = list(folder.episodes()), list(Folder(tmp_path / "back").episodes())
    assert [episode.steps for episode in back] == [4, 1, 3]
    np.testing.assert_allclose(back[0].observation, mine[0].observation[:5])
    np.testing.assert_allclose(back[0].reward, mine[0].reward[:5])
    assert back[0].discount[-1] == 1
    np.testing.assert_allclose(back[2].observation[:-1], mine[2].observation[:-1])
    np.testing.assert_allclose(back[2].reward, mine[2].reward)
    assert back[2].discount[-1] == 0


def test_what_can_not_be_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    folder = record(tmp_path / "mine", PENDULUM)
    source = str(folder.path)
    for given, told in (
        ((source, str(tmp_path / "other")), "must be a folder, and the other minari:NAME or d4rl:FILE"),
        ((source, "d4rl:file.npz"), "it must end in .hdf5"),
        ((source, "d4rl:file.hdf5", PENDULUM), "a folder names its own"),
        ((source, "d4rl:file.hdf5", None, {"g": 9.81}), "a folder names its own"),
        (("minari:none/here-v0", str(tmp_path / "x")), "there is no data set minari:none/here-v0 here"),
        ((f"d4rl:{tmp_path / 'none.hdf5'}", str(tmp_path / "x"), PENDULUM), "there is no file .*none.hdf5"),
    ):
        with pytest.raises(UsageError, match=f".*{told}"):
            exchange.convert(*given)
    exchange.convert(source, f"d4rl:{tmp_path / 'file.hdf5'}")
    with pytest.raises(UsageError, match=r"doesn't match the environment's specs: \[3\] there, \[4\] here"):
        exchange.convert(f"d4rl:{tmp_path / 'file.hdf5'}", str(tmp_path / "y"), CARTPOLE)
    empty = FolderWriter(tmp_path / "empty", folder.spec, folder.manifest)
    empty.begin()
    with pytest.raises(UsageError, match="empty has no whole episode yet"):
        exchange.convert(str(tmp_path / "empty"), f"d4rl:{tmp_path / 'no.hdf5'}")
    with pytest.raises(UsageError, match="`acme-ext data minari:a --to DIR` makes a folder of it"):
        Folder("minari:a")
    pictures = record(tmp_path / "p", PENDULUM)
    pictures.spec = pictures.spec._replace(observations=exchange.specs.Array((84, 84, 4), np.uint8))
    with pytest.raises(UsageError, match="as JPEG, which changes them"):
        exchange._write_minari(pictures, exchange._scale(PENDULUM, {}), "a/b-v0")


@pytest.mark.parametrize(
    ("environment", "column", "change", "told"),
    [
        (CARTPOLE, "actions", lambda x: np.eye(2)[x], r"actions of the shape \[5, 2\] for 5 steps"),
        (CARTPOLE, "actions", lambda x: x + 6, "actions from 6 to 7 there, of 2 here"),
        (PENDULUM, "actions", lambda x: np.repeat(x, 2, 1), r"actions of the shape \[5, 2\] for 5 steps"),
        (PENDULUM, "rewards", lambda x: x[:, None], r"rewards of the shape \[5, 1\] for 5 steps"),
    ],
)
def test_columns_that_do_not_fit_are_refused(tmp_path, environment, column, change, told):
    path = tmp_path / "file.hdf5"
    exchange.convert(str(record(tmp_path / "mine", environment).path), f"d4rl:{path}")
    with h5py.File(path, "r+") as file:
        changed = change(file[column][()])
        del file[column]
        file[column] = changed
    with pytest.raises(UsageError, match=f"the data of .* doesn't match the environment's specs: {told}"):
        exchange.convert(f"d4rl:{path}", str(tmp_path / "back"), environment)
    assert list((tmp_path / "back").iterdir()) == []


def test_the_rest_of_damaged_data_is_described_and_written(tmp_path, capsys):
    for lengths in ((5,), (3,)):
        folder = record(tmp_path / "mine", CARTPOLE, lengths, (True,))
    source = str(folder.path)
    (folder.path / "000000.npz").write_bytes(b"nothing")
    assert cli.main(["data", source]) == 2
    assert "000000.npz isn't what was written" in capsys.readouterr().err
    assert cli.main(["data", source, "--skip-damaged"]) == 0
    out = capsys.readouterr().out
    assert "3 steps in 1 episode, 1 shard; 1 damaged left out\nthe shard " in out
    assert "returns      mean" in out
    target = f"d4rl:{tmp_path / 'rest.hdf5'}"
    assert cli.main(["data", source, "--to", target]) == 2
    assert not (tmp_path / "rest.hdf5").exists()
    assert cli.main(["data", source, "--to", target, "--skip-damaged"]) == 0
    assert "3 steps in 1 episode\n" in capsys.readouterr().out
    (folder.path / "000001.npz").unlink()
    assert cli.main(["data", source, "--skip-damaged"]) == 2
    assert "are damaged." in capsys.readouterr().err
    assert cli.main(["data", ""]) == 2
    assert "the folder of the recorded data is missing" in capsys.readouterr().err

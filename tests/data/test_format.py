import json
import os
import subprocess
import sys

import acme.specs
import numpy as np
import pytest
from dm_env import specs

from acme_ext import envs
from acme_ext.data.format import Episode, Folder, FolderWriter, spec_from_json, spec_to_json
from acme_ext.envs.specs import DISCOUNT, REWARD
from acme_ext.errors import RunError, UsageError
from acme_ext.utils import files

SPEC = acme.specs.EnvironmentSpec(
    {"a": specs.Array((2,), np.float32), "b": specs.BoundedArray((), np.uint8, 0, 255)},
    specs.DiscreteArray(3),
    REWARD,
    DISCOUNT,
)
ABOUT = {"environment": "gym:CartPole-v1", "environment_options": {}, "agent": "dqn", "config": {}, "seed": 0}


def episode(length: int, value: float) -> Episode:
    """An episode of `length` steps with a reward of `value` each."""
    reward = np.full(length + 1, value, np.float32)
    reward[0] = 0
    return Episode(
        {"a": np.full((length + 1, 2), value, np.float32), "b": np.arange(length + 1, dtype=np.uint8)},
        np.arange(length + 1, dtype=np.int32) % 3,
        reward,
        np.ones(length + 1, np.float32),
        np.array([0] + [1] * (length - 1) + [2], np.uint8),
    )


def write(folder, *episodes, **options):
    writer = FolderWriter(folder, SPEC, ABOUT, **options)
    for one in episodes:
        writer.add(one)
    writer.close()


def test_what_is_written_is_read(tmp_path):
    episodes = [episode(3, 1.0), episode(1, -2.0), episode(5, 0.5)]
    write(tmp_path / "d", *episodes, shard_steps=4)
    folder = Folder(tmp_path / "d")
    assert [shard["steps"] for shard in folder.shards] == [4, 5]
    assert folder.steps == 9
    np.testing.assert_allclose(folder.returns, [3, -2, 2.5])
    for there, here in zip(folder.episodes(), episodes, strict=True):
        for x, y in zip(there, here, strict=True):
            np.testing.assert_equal(x, y)
    assert [e.score for e in folder.episodes(best=0.34)] == [3.0]


def test_a_folder_is_added_to(tmp_path):
    write(tmp_path, episode(3, 1.0))
    before = Folder(tmp_path).digest
    write(tmp_path, episode(2, 2.0))
    assert [e.steps for e in Folder(tmp_path).episodes()] == [3, 2]
    assert Folder(tmp_path).digest != before


def test_continuous_actions_are_those_that_the_environment_took(tmp_path):
    """Policies of on-policy agents sample from a normal distribution, and the environment clips their actions."""
    spec = SPEC._replace(actions=specs.BoundedArray((1,), np.float32, -1.0, 1.0))
    action = np.array([[3.0], [-0.5], [-7.0], [0.0]], np.float32)
    writer = FolderWriter(tmp_path, spec, ABOUT)
    writer.add(episode(3, 1.0)._replace(action=action))
    writer.close()
    (there,) = Folder(tmp_path).episodes()
    np.testing.assert_array_equal(there.action, np.array([[1.0], [-0.5], [-1.0], [0.0]], np.float32))
    assert there.action.dtype == np.float32
    assert action[0, 0] == 3.0  # the agent's own experience stays as it is


def test_several_processes_write_at_a_time_and_all_of_it_is_read(tmp_path):
    FolderWriter(tmp_path, SPEC, ABOUT).begin()
    assert list(Folder(tmp_path).episodes()) == []
    writers = [FolderWriter(tmp_path, SPEC, {}, shard_steps=2, part=name) for name in ("actor-0", "actor-1", "actor-1")]
    for turn in range(3):
        for number, writer in enumerate(writers):
            writer.add(episode(1 + turn, 10.0 * number + turn))
    before = Folder(tmp_path)
    for writer in writers:
        writer.close()
    folder = Folder(tmp_path)
    assert (before.steps, folder.steps) == (18, 18)  # each shard was on the disk as soon as it was full
    assert [shard["steps"] for shard in folder.shards] == [3, 3] * 3
    there = {(e.steps, float(e.reward[1])) for e in folder.episodes()}
    assert there == {(1 + turn, 10.0 * number + turn) for turn in range(3) for number in range(3)}
    assert folder.manifest["environment"] == "gym:CartPole-v1"
    # Whoever writes alone, before or after, adds to them.
    write(tmp_path, episode(4, 0.0))
    assert Folder(tmp_path).steps == 22
    assert next(Folder(tmp_path).episodes()).steps == 4


def test_processes_that_each_write_alone_keep_what_the_others_wrote(tmp_path):
    writers = [FolderWriter(tmp_path, SPEC, ABOUT, shard_steps=2) for _ in range(2)]
    for value in range(3):
        for number, writer in enumerate(writers):
            writer.add(episode(2, 10.0 * number + value))
    assert [e.reward[1] for e in Folder(tmp_path).episodes()] == [0, 10, 1, 11, 2, 12]


def test_a_killed_writer_loses_its_open_shard_alone(tmp_path):
    FolderWriter(tmp_path, SPEC, ABOUT).begin()
    program = (
        "import sys, test_format as t\n"
        "writer = t.FolderWriter(sys.argv[1], t.SPEC, {}, shard_steps=3, part='actor-0')\n"
        "for number in range(10**9):\n"
        "    writer.add(t.episode(1, 1.0))\n"
        "    if number % 3 == 2: print('written', flush=True)\n"
    )
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    line = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(line, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(4)]
        process.kill()
        said += process.stdout.readlines()
    assert set(said) == {b"written\n"}
    folder = Folder(tmp_path)
    assert len(said) <= len(folder.shards) <= len(said) + 1  # of one it may not have said that it was written
    assert len(list(folder.episodes())) == 3 * len(folder.shards)


@pytest.mark.parametrize("part", [None, "actor-0"])
def test_episodes_are_listed_once_if_the_list_could_not_be_written_at_first(tmp_path, monkeypatch, part):
    """A process that ends with an error writes its open shard once more."""
    FolderWriter(tmp_path, SPEC, ABOUT).begin()
    writer = FolderWriter(tmp_path, SPEC, {}, part=part)
    writer.begin()
    writer.add(episode(3, 1.0))

    def fail(path, value):
        raise RunError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_json", fail)
        with pytest.raises(RunError):
            writer.flush()
    writer.close()
    assert [each.steps for each in Folder(tmp_path).episodes()] == [3]


def test_a_folder_that_another_host_does_not_see_is_named(tmp_path):
    with pytest.raises(UsageError, match="is not the one that the program records to"):
        FolderWriter(tmp_path / "d", SPEC, {}, part="actor-0")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_shard_is_named_and_can_be_left_out(tmp_path, damage):
    write(tmp_path, episode(3, 1.0), episode(2, 2.0), shard_steps=1)
    path = tmp_path / "000000.npz"
    path.write_bytes(path.read_bytes()[:-1]) if damage == "changed" else path.unlink()
    with pytest.raises(UsageError, match=r"the shard .*000000\.npz (isn't what was written|is gone)"):
        list(Folder(tmp_path).episodes())
    folder = Folder(tmp_path, skip_damaged=True)
    assert [e.steps for e in folder.episodes()] == [2]
    assert len(folder.damaged) == 1


def test_of_data_that_is_all_damaged_no_other_part_is_offered(tmp_path):
    write(tmp_path, episode(3, 1.0))
    (tmp_path / "000000.npz").write_bytes(b"other")
    with pytest.raises(UsageError, match=r"isn't what was written: its SHA-256 differs\.$"):
        list(Folder(tmp_path).episodes())
    with pytest.raises(UsageError, match=r"all shards of .* are damaged\.$"):
        list(Folder(tmp_path, skip_damaged=True).episodes())


def test_other_folders_and_other_specs_are_refused(tmp_path):
    with pytest.raises(UsageError, match="is not recorded data"):
        Folder(tmp_path)
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UsageError, match="neither empty nor recorded data"):
        write(tmp_path)
    write(tmp_path / "d", episode(1, 1.0))
    other = SPEC._replace(actions=specs.DiscreteArray(4))
    with pytest.raises(UsageError, match="other specs"):
        FolderWriter(tmp_path / "d", other, ABOUT)


def test_specs_come_back_from_json():
    spec = acme.specs.EnvironmentSpec(
        (specs.BoundedArray((2,), np.float32, [-np.inf, 0.1], [1.5, np.inf]), {"x": specs.Array((), np.int32)}),
        specs.BoundedArray((1,), np.float32, -1.0, 1.0),
        REWARD,
        DISCOUNT,
    )
    there = spec_from_json(json.loads(json.dumps(spec_to_json(spec))))
    assert spec_to_json(there) == spec_to_json(spec)
    first = there.observations[0]
    np.testing.assert_array_equal(first.minimum, np.array([-np.inf, 0.1], np.float32))
    assert there.actions == spec.actions


@pytest.mark.parametrize(
    "name", ["gym:FrozenLake-v1", "minatar:breakout", "explore:random_coin", "dmc:cartpole/swingup"]
)
def test_specs_of_environments_come_back_from_json(name):
    spec = envs.make_spec(envs.make_single(name))
    there = spec_from_json(json.loads(json.dumps(spec_to_json(spec))))
    assert (there.observations, there.actions) == (spec.observations, spec.actions)

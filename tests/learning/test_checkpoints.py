"""Checkpoints: what is saved comes back, and what isn't whole is never taken for it."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis.extra import numpy as hnp

from acme_ext.errors import RunError, UsageError
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.utils import files


class _State(NamedTuple):
    params: dict
    steps: jax.Array
    key: jax.Array


class _Pair(NamedTuple):
    npy: Any  # a name that NumPy's archives treat as an ending
    x: Any


def _state(seed: int = 0) -> _State:
    key = jax.random.key(seed)
    params = {"mlp/~/linear_0": {"w": jax.random.normal(key, (3, 2)), "b": jnp.ones(2, jnp.bfloat16) * seed}}
    return _State(params, jnp.int32(seed), key)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _assert_same(restored, saved) -> None:
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(saved), strict=True):
        if isinstance(b, (bool, int, float)):
            assert type(a) is type(b)
            assert a == b or (a != a and b != b)
            continue
        if isinstance(b, jax.Array) and jnp.issubdtype(b.dtype, jax.dtypes.prng_key):
            assert isinstance(a, jax.Array)
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        else:
            assert isinstance(a, np.ndarray)
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.tobytes() == b.tobytes()  # to the bit, NaN's too


_DTYPES = [np.float32, np.float64, np.int8, np.uint64, np.bool_, np.complex64, ">i2"]
_ARRAYS = hnp.arrays(st.sampled_from(_DTYPES).map(np.dtype), hnp.array_shapes(min_dims=0, min_side=0, max_side=3))
_LEAVES = st.one_of(
    _ARRAYS,
    _ARRAYS.map(np.transpose),  # not contiguous
    st.integers(0, 2**31).map(jnp.uint32),
    st.lists(st.floats(width=16), max_size=3).map(lambda values: jnp.array(values, jnp.bfloat16)),
    st.floats(width=16).map(lambda value: jnp.array(value, jnp.float8_e4m3fn)),
    st.tuples(st.integers(0, 9), st.sampled_from(["threefry2x32", "rbg"])).map(
        lambda x: jax.random.key(x[0], impl=x[1])
    ),
    st.integers(0, 9).map(lambda seed: jax.random.split(jax.random.key(seed), 3)),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.none(),  # not a leaf, but a part of the structure
)
_TREES = st.recursive(
    _LEAVES,
    lambda trees: st.one_of(
        st.lists(trees, max_size=3),
        st.tuples(trees, trees),
        st.builds(_Pair, trees, trees),
        st.dictionaries(st.text(max_size=4), trees, max_size=3),
        st.dictionaries(st.integers(), trees, max_size=2),
    ),
    max_leaves=6,
)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(_TREES, st.dictionaries(st.text(max_size=3), st.integers() | st.none() | st.text(max_size=3)))
def test_any_tree_comes_back_to_the_bit(tmp_path_factory, tree, info):
    store = CheckpointStore(tmp_path_factory.mktemp("store"), report=pytest.fail)
    store.save(3, {"tree": tree, "other": [np.int32(1)]}, {"info": info})
    restored = store.restore({"tree": tree})
    assert restored is not None
    assert restored.steps == 3
    assert restored.info == {"info": info}
    _assert_same(restored.trees["tree"], tree)


def test_a_learners_state_is_restored_from_its_shapes(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    assert store.restore({"learner": _state()}) is None
    path = store.save(5, {"learner": _state(7)}, {"counts": {"steps": 5}})
    assert path == tmp_path / "checkpoints" / "000000000005"
    assert _names(path) == ["counts.json", "learner.npz", "manifest.json"]
    with np.load(path / "learner.npz", allow_pickle=False) as file:
        assert ".params['mlp/~/linear_0']['w']" in file.files
    restored = store.restore({"learner": jax.eval_shape(_state)})
    assert restored is not None
    assert (restored.info, restored.path) == ({"counts": {"steps": 5}}, path)
    _assert_same(restored.trees["learner"], _state(7))


def test_extra_files_come_with_it_and_are_checked(tmp_path):
    reports = []
    store = CheckpointStore(tmp_path, report=reports.append)

    def extra(folder: Path) -> None:
        (folder / "replay").mkdir()
        (folder / "replay" / "chunks").write_bytes(b"12345")

    path = store.save(1, {}, {}, extra)
    restored = store.restore({})
    assert restored is not None
    assert (restored.path / "replay" / "chunks").read_bytes() == b"12345"
    (path / "replay" / "chunks").write_bytes(b"12346")
    with pytest.raises(RunError, match=r"every checkpoint in .* is damaged"):
        store.restore({})
    assert "the contents of replay/chunks have changed" in reports[0]


def test_the_latest_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for steps in (9, 10, 100, 1000):
        store.save(steps, {"x": np.int64(steps)}, {})
    assert _names(tmp_path) == ["000000000100", "000000001000"]
    restored = store.restore({"x": np.int64(0)})
    assert restored is not None
    assert restored.trees["x"] == 1000
    with pytest.raises(UsageError, match="at least 1"):
        CheckpointStore(tmp_path, keep=0)


def test_a_damaged_checkpoint_does_not_count_among_those_that_are_kept(tmp_path):
    first = CheckpointStore(tmp_path, keep=2, report=lambda message: None)
    for steps in (1, 2):
        first.save(steps, {"x": np.int64(steps)}, {})
    os.truncate(tmp_path / "000000000002" / "x.npz", 10)
    # A resumed run finds the damage when it restores; another store when it is about to delete a good one.
    resumed = CheckpointStore(tmp_path, keep=2, report=lambda message: None)
    assert resumed.restore({"x": np.int64(0)}).steps == 1
    for store in (resumed, CheckpointStore(tmp_path, keep=2)):
        store.save(3, {"x": np.int64(3)}, {})
        assert _names(tmp_path) == ["000000000001", "000000000002", "000000000003"]
    store.save(4, {"x": np.int64(4)}, {})
    assert _names(tmp_path) == ["000000000003", "000000000004"]


def test_a_checkpoint_is_looked_at_once_however_often_there_is_a_save(tmp_path, monkeypatch):
    CheckpointStore(tmp_path).save(1, {"x": np.int64(1)}, {})
    looked = []
    sha256 = files.sha256
    monkeypatch.setattr(files, "sha256", lambda path: looked.append(path.parent.name) or sha256(path))
    store = CheckpointStore(tmp_path, keep=9)
    for steps in (2, 3, 4):
        store.save(steps, {"x": np.int64(steps)}, {})
    # Those that it has written itself it only takes the digests of.
    assert [name for name in looked if not name.startswith(".")] == ["000000000001"]


def test_what_extra_wrote_may_be_left_aside(tmp_path):
    reports: list[str] = []
    store = CheckpointStore(tmp_path, report=reports.append)
    path = store.save(
        1, {"x": np.int64(1), "y": np.int64(2)}, {"a": 3}, lambda f: (f / "big").write_bytes(b"1") and None
    )
    (path / "big").unlink()
    (path / "y.npz").unlink()
    restored = store.restore({"x": np.int64(0)}, extra=False)
    assert (restored.trees, restored.info) == ({"x": 1}, {"a": 3})
    assert reports == []
    with pytest.raises(RunError, match="is damaged"):
        store.restore({"x": np.int64(0), "y": np.int64(0)}, extra=False)
    (path / "a.json").write_text("4")
    with pytest.raises(RunError, match="is damaged"):
        store.restore({"x": np.int64(0)}, extra=False)


def test_the_same_steps_are_replaced_and_later_ones_given_up(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for steps in (1, 2, 3):
        store.save(steps, {"x": np.int64(steps)}, {})
    store.save(2, {"x": np.int64(20)}, {})
    assert _names(tmp_path) == ["000000000002"]  # 1 went when 3 came
    restored = store.restore({"x": np.int64(0)})
    assert restored is not None
    assert restored.trees["x"] == 20


def test_a_kill_while_the_same_steps_are_replaced_leaves_the_replaced_one(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path, keep=1)
    store.save(1, {"x": np.int64(1)}, {})
    rename = os.rename

    def killed_after_the_first(source, target):
        monkeypatch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        rename(source, target)

    monkeypatch.setattr(os, "rename", killed_after_the_first)
    with pytest.raises(KeyboardInterrupt):
        store.save(1, {"x": np.int64(10)}, {})
    monkeypatch.undo()
    restored = store.restore({"x": np.int64(0)})
    assert restored is not None
    assert (restored.steps, restored.trees["x"]) == (1, 1)
    store.save(1, {"x": np.int64(100)}, {})
    assert _names(tmp_path) == ["000000000001"]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_kill_after_the_same_steps_were_replaced_is_mended_by_the_next_save(tmp_path, monkeypatch, damaged):
    store = CheckpointStore(tmp_path, keep=1)
    store.save(1, {"x": np.int64(1)}, {})
    monkeypatch.setattr(store, "_prune", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.save(1, {"x": np.int64(10)}, {})
    assert _names(tmp_path) == ["000000000001", "000000000001.replaced"]
    if damaged:
        (tmp_path / "000000000001" / "x.npz").unlink()
    store = CheckpointStore(tmp_path, keep=1)
    restored = store.restore({"x": np.int64(0)})
    assert restored is not None
    assert restored.trees["x"] == (1 if damaged else 10)
    store.save(1, {"x": np.int64(100)}, {})
    assert _names(tmp_path) == ["000000000001"]
    restored = store.restore({"x": np.int64(0)})
    assert restored is not None
    assert restored.trees["x"] == 100


def test_a_reader_looks_again_where_a_live_run_has_replaced_the_checkpoint(tmp_path, monkeypatch):
    writer, reader = CheckpointStore(tmp_path, keep=1), CheckpointStore(tmp_path, keep=1)
    writer.save(1, {"x": np.int64(1)}, {})
    listed, told = reader._folders, []

    def one_late(steps: int | None = None) -> list[Path]:
        folders = listed(steps)
        if not told:
            told.append(writer.save(2, {"x": np.int64(2)}, {}))
        return folders

    monkeypatch.setattr(reader, "_folders", one_late)
    restored = reader.restore({"x": np.int64(0)})
    assert restored is not None
    assert restored.steps == 2


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def _damages():
    yield "truncated", lambda folder: os.truncate(folder / "learner.npz", 100), r"learner\.npz has 100 bytes instead of"
    yield "grown", lambda folder: os.truncate(folder / "learner.npz", 10**5), r"learner\.npz has 100000 bytes instead"
    yield "missing", lambda folder: (folder / "learner.npz").unlink(), r"learner\.npz is missing"
    yield "json", lambda folder: _flip(folder / "counts.json", 5), r"the contents of counts\.json have changed"
    yield "no manifest", lambda folder: (folder / "manifest.json").unlink(), r"manifest\.json is missing"
    yield "empty manifest", lambda folder: os.truncate(folder / "manifest.json", 0), r"manifest\.json can't be read"
    yield "empty folder", lambda folder: (shutil.rmtree(folder), folder.mkdir()), r"manifest\.json is missing"


@pytest.mark.parametrize(("damage", "message"), [pytest.param(d, m, id=name) for name, d, m in _damages()])
def test_a_damaged_checkpoint_is_passed_over_and_told(tmp_path, damage, message):
    reports = []
    store = CheckpointStore(tmp_path, report=reports.append)
    for steps in (1, 2):
        store.save(steps, {"learner": _state(steps)}, {"counts": {"steps": steps}})
    damage(tmp_path / "000000000002")
    restored = store.restore({"learner": _state()})
    assert restored is not None
    assert (restored.steps, restored.info["counts"]) == (1, {"steps": 1})
    _assert_same(restored.trees["learner"], _state(1))
    (report,) = reports
    assert report.startswith(f"the checkpoint {tmp_path / '000000000002'} is damaged")
    assert re.search(message, report)


def test_a_flipped_bit_anywhere_is_found(tmp_path):
    reports = []
    store = CheckpointStore(tmp_path, report=reports.append)
    folder = store.save(1, {"x": {"a": np.arange(3)}}, {"counts": {"steps": 1}})
    for path in sorted(folder.iterdir()):
        good = path.read_bytes()
        for at in range(len(good)):
            if good[at : at + 1].isspace():
                continue  # the layout of the manifest doesn't count
            _flip(path, at)
            with pytest.raises(RunError, match="every checkpoint"):
                store.restore({"x": {"a": np.arange(3)}})
            path.write_bytes(good)
    assert store.restore({"x": {"a": np.arange(3)}}) is not None


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"a": np.zeros(3), "b": 0}, r"x\['a'\] is float64\[2\] there, and float64\[3\] here"),
        ({"a": np.zeros(2, np.float32), "b": 0}, r"x\['a'\] is float64\[2\] there, and float32\[2\] here"),
        ({"a": np.zeros(2), "b": 0.0}, r"x\['b'\] is int64\[\] there, and float here"),
        ({"a": np.zeros(2), "b": 0, "c": 1}, r"no leaf x\['c'\], which the run needs"),
        ({"a": np.zeros(2)}, r"has a leaf x\['b'\], which the run hasn't"),
        ({"a": jax.random.split(jax.random.key(0)), "b": 0}, r"x\['a'\] is float64\[2\] there, and key<fry>\[2\] here"),
    ],
)
def test_a_tree_that_is_not_as_its_template_is_named(tmp_path, template, message):
    store = CheckpointStore(tmp_path, report=pytest.fail)
    store.save(1, {"x": {"a": np.zeros(2), "b": 0}}, {})
    with pytest.raises(UsageError, match=message):
        store.restore({"x": template})
    with pytest.raises(UsageError, match="holds no tree 'y'; it holds x"):
        store.restore({"y": template})


def test_keys_of_another_kind_are_named(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(1, {"key": jax.random.key(0, impl="rbg")}, {})
    with pytest.raises(UsageError, match=r"key is key<rbg>\[\] there, and key<fry>\[\] here"):
        store.restore({"key": jax.random.key(0)})


@pytest.mark.parametrize(
    ("tree", "named"), [({"a": "text"}, r"x\['a'\]"), ([object()], r"x\[0\]"), ([2**70], r"x\[0\]")]
)
def test_what_cannot_be_saved_is_named_and_leaves_nothing(tmp_path, tree, named):
    with pytest.raises(TypeError, match=named + " can't be saved"):
        CheckpointStore(tmp_path).save(1, {"x": tree}, {})
    assert _names(tmp_path) == []


@pytest.mark.parametrize(("trees", "info"), [({"a/b": 1}, {}), ({"a": 1}, {"a": 2}), ({}, {"manifest": 1})])
def test_names_that_would_collide_are_refused(tmp_path, trees, info):
    with pytest.raises(ValueError, match="a name of its own"):
        CheckpointStore(tmp_path).save(1, trees, info)


_SAVES = """
import sys, time
import numpy as np
from acme_ext.learning.checkpoints import CheckpointStore

def extra(folder):
    (folder / "half").write_bytes(b"x")
    print("saving", flush=True)
    time.sleep(60)

store = CheckpointStore(sys.argv[1])
store.save(1, {"x": np.arange(4)}, {})
store.save(2, {"x": np.arange(4) * 2}, {}, extra)
"""


def test_a_save_that_is_killed_leaves_the_older_checkpoint(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", _SAVES, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "saving\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert len(_names(tmp_path)) == 2
    store = CheckpointStore(tmp_path, report=pytest.fail)
    restored = store.restore({"x": np.arange(4)})
    assert restored is not None
    assert restored.steps == 1
    store.save(2, {"x": np.arange(4)}, {})
    assert _names(tmp_path) == ["000000000001", "000000000002"]


_TOO_LARGE = """
import resource, sys
import numpy as np
from acme_ext.errors import RunError
from acme_ext.learning.checkpoints import CheckpointStore

store = CheckpointStore(sys.argv[1])
store.save(1, {"x": np.arange(4)}, {})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    store.save(2, {"x": np.zeros(100_000)}, {})
except RunError as error:
    print(error)
"""


def test_a_write_that_the_system_refuses_half_way_leaves_the_older_checkpoint(tmp_path):
    done = subprocess.run([sys.executable, "-c", _TOO_LARGE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path / '000000000002'} can't be written: File too large.\n"
    assert _names(tmp_path) == ["000000000001"]
    assert CheckpointStore(tmp_path, report=pytest.fail).restore({"x": np.arange(4)}) is not None


def test_a_full_disk_is_known_by_reverbs_words_for_it_too(tmp_path):
    def fails(folder: Path) -> None:
        raise IndexError(f"{folder}/chunks.tfrecord; No space left on device")

    with pytest.raises(RunError, match="is full: free some space"):
        CheckpointStore(tmp_path).save(1, {}, {}, fails)
    assert _names(tmp_path) == []


@pytest.mark.parametrize("where", ["fsync", "rename", "extra"])
def test_a_full_disk_is_a_run_error_and_the_older_checkpoints_stay(tmp_path, monkeypatch, where):
    store = CheckpointStore(tmp_path, keep=1, report=pytest.fail)
    store.save(1, {"x": np.arange(4)}, {})

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if where != "extra":
        monkeypatch.setattr(os, where, full)
    with pytest.raises(RunError, match=r"the disk that holds .*000000000002 is full"):
        store.save(2, {"x": np.arange(4)}, {}, full if where == "extra" else None)
    monkeypatch.undo()
    assert _names(tmp_path) == ["000000000001"]
    assert store.restore({"x": np.arange(4)}) is not None


def test_an_error_of_extra_comes_through_and_leaves_nothing(tmp_path):
    def fails(_: Path) -> None:
        raise ConnectionResetError("the replay server is gone")

    with pytest.raises(ConnectionResetError):
        CheckpointStore(tmp_path).save(1, {}, {}, fails)
    assert _names(tmp_path) == []


def test_files_of_the_checkpoint_before_are_shared_and_hashed_once(tmp_path, monkeypatch):
    hashed, sha256 = [], files.sha256
    monkeypatch.setattr(files, "sha256", lambda path: hashed.append(path.name) or sha256(path))
    store = CheckpointStore(tmp_path / "checkpoints", keep=1)
    first = store.save(1, {}, {"state": 1}, lambda folder: (folder / "large").write_text("contents") and None)
    store.save(2, {}, {"state": 2}, lambda folder: os.link(first / "large", folder / "large"))
    assert hashed.count("large") == 1
    assert not first.exists()
    restored = CheckpointStore(tmp_path / "checkpoints").restore({})
    assert (restored.steps, (restored.path / "large").read_text()) == (2, "contents")
    (restored.path / "large").write_text("Contents")
    with pytest.raises(RunError, match="damaged"):
        CheckpointStore(tmp_path / "checkpoints").restore({})


def test_a_file_written_again_under_a_shared_name_is_hashed_again(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(1, {}, {}, lambda folder: (folder / "large").write_text("contents") and None)
    store.save(2, {}, {}, lambda folder: (folder / "large").write_text("Contents") and None)
    restored = CheckpointStore(tmp_path / "checkpoints").restore({})
    assert (restored.path / "large").read_text() == "Contents"


def test_one_checkpoint_can_be_asked_for_by_its_steps(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    for steps in (1, 2):
        store.save(steps, {}, {"state": steps})
    assert store.restore({}, steps=1).info == {"state": 1}
    assert store.restore({}, steps=3) is None

"""Writing to disk: all or nothing."""

import errno
import os

import numpy as np
import pytest

from acme_ext.errors import RunError, UsageError
from acme_ext.utils import files


def _full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_json_round_trip_takes_numpy_values_and_paths(tmp_path):
    path = tmp_path / "x.json"
    files.write_json(path, {"a": np.float32(0.5), "b": np.arange(3), "c": (1, 2), "d": tmp_path})
    assert files.read_json(path) == {"a": 0.5, "b": [0, 1, 2], "c": [1, 2], "d": str(tmp_path)}


def test_what_killed_writers_left_is_no_entry_of_a_folder(tmp_path):
    for name in (".x.json.123.tmp", ".probe.7", ".hidden", "x.tmp"):
        (tmp_path / name).touch()
    assert {path.name for path in files.entries(tmp_path)} == {".hidden", "x.tmp"}


def test_a_value_without_json_form_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(TypeError, match="object"):
        files.write_json(path, {"a": object()})
    assert files.read_json(path) == {"a": 1}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "x.json"
    files.write_json(path, {"a": 1})
    monkeypatch.setattr(os, call, _full)
    with pytest.raises(RunError, match="is full"):
        files.write_json(path, {"a": 2})
    assert files.read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def half_write():
        with files.replacing(path) as temporary:
            temporary.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half_write()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_other_refusals_and_a_peers_errors_are_told_apart(tmp_path):
    with pytest.raises(RunError, match="can't be written: Read-only file system"), files.disk_errors(tmp_path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    with pytest.raises(ConnectionResetError), files.disk_errors(tmp_path):
        raise ConnectionResetError(errno.ECONNRESET, "gone")


def test_a_damaged_json_file_is_named(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"a": ')
    with pytest.raises(UsageError, match=r"x\.json is damaged"):
        files.read_json(path)
    with pytest.raises(UsageError, match=r"y\.json can't be read: No such file"):
        files.read_json(tmp_path / "y.json")


def test_sha256_is_of_the_contents(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert files.sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

"""libpython is found beside an interpreter that doesn't load it, and an interpreter that does is left alone."""

import ctypes
import os
import subprocess
import sys

from acme_ext.utils import libpython


def test_it_is_loaded_by_its_path_where_no_process_has_it(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    calls = []

    def only_by_path(name, mode):
        calls.append((name, mode))
        if name != str(tmp_path / "lib" / libpython.NAME):
            raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(ctypes, "CDLL", only_by_path)
    assert libpython.load() == str(tmp_path / "lib" / libpython.NAME)
    assert calls[0] == (libpython.NAME, os.RTLD_NOLOAD)


def test_where_it_is_loaded_nothing_else_is_tried(monkeypatch):
    calls = []
    monkeypatch.setattr(ctypes, "CDLL", lambda *call: calls.append(call))
    assert libpython.load() == libpython.NAME
    assert calls == [(libpython.NAME, os.RTLD_NOLOAD)]


def test_where_it_is_nowhere_there_is_none(monkeypatch):
    def nowhere(name, mode):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", nowhere)
    assert libpython.load() is None


def test_importing_the_package_loads_it():
    code = (
        "import ctypes, os, acme_ext\n"
        "from acme_ext.utils import libpython\n"
        "ctypes.CDLL(libpython.NAME, os.RTLD_NOLOAD)"  # raises where it isn't in the process
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bootstrap_is_told_where_it_is():
    done = subprocess.run([sys.executable, libpython.__file__], capture_output=True, text=True, check=True)
    assert os.path.basename(done.stdout.strip()) == libpython.NAME

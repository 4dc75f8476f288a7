"""One fetch of parameters for all of a host."""

import fcntl
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from acme_ext.acting import shared
from acme_ext.acting.shared import SharedFetch


class Learner:
    """Answers with its version, and counts who asks."""

    def __init__(self):
        self.version, self.asked = 0, []

    def fetch(self, who):
        def fetch(held):
            self.asked.append(who)
            newer = self.version > held
            return self.version, np.full(4, self.version, np.uint8) if newer else None

        return fetch


@pytest.fixture
def learner():
    return Learner()


@pytest.fixture
def share(learner, tmp_path):
    """Makes one that shares its fetches under a name with the others of that name."""
    made = []

    def share(who, name=b"secret", root=tmp_path):
        made.append(SharedFetch(learner.fetch(who), name, root))
        return made[-1]

    yield share
    for each in made:
        each.close()


def version(answer):
    number, payload = answer
    return number, None if payload is None else payload.tolist()


def test_one_asks_and_the_others_read_its_answer(learner, share, tmp_path):
    fetches = [share(who) for who in "abc"]
    for fetch in fetches:
        assert fetch(0) == (0, None)  # and all are there
    learner.version = 3
    learner.asked.clear()
    for fetch in fetches:
        assert version(fetch(0)) == (3, [3, 3, 3, 3])
    assert learner.asked == ["a"]
    assert fetches[1](3) == (3, None)  # what has been read already is asked for anew
    assert learner.asked == ["a", "b"]
    for fetch in fetches:
        fetch.close()
    assert list(tmp_path.iterdir()) == []


def test_those_of_other_learners_share_nothing(learner, share):
    ours, theirs = share("ours"), share("theirs", b"another")
    ours(0), theirs(0)
    learner.version = 1
    learner.asked.clear()
    assert version(ours(0)) == version(theirs(0)) == (1, [1, 1, 1, 1])
    assert learner.asked == ["ours", "theirs"]


def test_who_is_alone_writes_nothing(learner, share, tmp_path):
    fetch = share("a")
    for learner.version in (1, 2):
        assert fetch(learner.version - 1)[0] == learner.version
    (folder,) = tmp_path.iterdir()
    assert not (folder / "params").exists()


def test_where_who_asks_has_no_answer_the_others_ask_after_a_while(learner, share, tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "_HELD_S", 0.0)
    fetch = share("b")
    fetch(0)
    learner.version = 2
    learner.asked.clear()
    (folder,) = tmp_path.iterdir()
    with open(folder / "asks", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert fetch(0) == (0, None)
        monkeypatch.setattr(shared, "_PATIENCE_S", 0.0)
        assert version(fetch(0)) == (2, [2, 2, 2, 2])
    assert learner.asked == ["b"]


@pytest.mark.parametrize("trouble", ["no folder", "no room"])
def test_where_nothing_can_be_shared_each_asks(learner, share, tmp_path, trouble):
    root = tmp_path / "missing" if trouble == "no folder" else tmp_path
    fetches = [share(who, root=root) for who in "ab"]
    for fetch in fetches:
        fetch(0)
    if trouble == "no room":
        (folder,) = tmp_path.iterdir()
        (folder / "writing").mkdir()  # as good as a full disk
    learner.version = 1
    learner.asked.clear()
    for fetch in fetches:
        assert version(fetch(0)) == (1, [1, 1, 1, 1])
    assert learner.asked == ["a", "b"]


def test_who_is_killed_holds_nobody_up_and_leaves_nothing_for_long(learner, share, tmp_path):
    code = """
        import pathlib, sys, time
        from acme_ext.acting.shared import SharedFetch
        def fetch(held):
            if held:
                print("asks", flush=True)
                time.sleep(1000)
            return 0, None
        shared = SharedFetch(fetch, b"secret", pathlib.Path(sys.argv[1]))
        shared(0), shared(1)
    """
    other = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), tmp_path], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "asks\n"
    (left,) = tmp_path.iterdir()
    other.send_signal(signal.SIGKILL)
    other.communicate()
    same, another = share("same"), share("another", b"another")
    for _ in range(2):
        assert same(0) == (0, None)
    assert learner.asked == ["same", "same"]
    another(0)
    assert left.exists(), "it is in use"
    same.close.detach()  # as if it were killed too
    for lock in same._locks:
        lock.close()
    share("third", b"third")(0)
    assert not left.exists()


def test_a_programs_end_removes_what_killed_processes_left(share, tmp_path):
    used, killed = share("used"), share("killed", b"killed")
    for fetch in (used, killed):
        fetch(0)
    shared.remove_left(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2, "both are in use"
    killed.close.detach()  # as if its process were killed
    for lock in killed._locks:
        lock.close()
    shared.remove_left(tmp_path)
    assert list(tmp_path.iterdir()) == [used._folder]


def test_what_an_earlier_start_left_is_not_read(learner, share, tmp_path):
    before = share("before")
    before(0)
    (folder,) = tmp_path.iterdir()
    (folder / "params").write_bytes((9).to_bytes(8, "little") + b"later")
    beside = share("beside")
    assert beside(0)[0] == 0
    assert beside(0)[0] == 9
    for each in (before, beside):  # as if they were killed
        each.close.detach()
        each._locks[0].close()
    after = share("after")
    assert [after(0) for _ in range(2)] == [(0, None), (0, None)]


def test_a_folder_is_nobody_elses(share, tmp_path):
    share("a")(0)
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert b"secret" not in os.fsencode(folder)

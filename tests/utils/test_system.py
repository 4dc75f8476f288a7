"""What the operating system offers, and what is done where it is not Linux."""

import os
import pathlib
import signal
import subprocess
import sys

import other_system
import pytest

from acme_ext.launch.hosts import isolation
from acme_ext.utils import system
from acme_ext.utils.rundir import RunDirectory


@pytest.fixture
def elsewhere(monkeypatch):
    """Lets the module see another system than Linux, in this process."""
    for name in ("_PROC", "_CGROUPS", "_SHARED_MEMORY"):
        monkeypatch.setattr(system, name, pathlib.Path("/nonexistent"))
    monkeypatch.setattr(system.sys, "platform", "darwin")
    for name in ("sched_getaffinity", "sched_yield", "waitid"):
        monkeypatch.delattr(os, name)
    monkeypatch.delattr(system.fcntl, "F_SETPIPE_SZ")
    monkeypatch.delattr(signal, "SIGRTMIN")


def _run(code: str, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(other_system.CODE_FOLDER), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


_TRAINING = """
import sys
import jax, haiku, optax, gymnasium, matplotlib.pyplot, tensorboardX  # for whose imports the system is Linux
try:
    import acme, launchpad, reverb
except ImportError:
    pass
import other_system
other_system.hide_names()
other_system.become_darwin()
import acme_ext
other_system.hide_system()
from acme_ext import launch
from acme_ext.builders import DQN
from acme_ext.config.assignments import replace_fields

builder = DQN(replace_fields(DQN().config, {"hidden_sizes": (8,), "batch_size": 16, "replay.min_size": 100}))
experiment = launch.Experiment(
    builder, "gym:CartPole-v1", 400, run_dir=sys.argv[1], evaluation=launch.Evaluation(episodes=1), table=sys.argv[2]
)
result = launch.run(experiment, quiet=True)
print(result.environment_steps, result.learner_steps > 0, result.curve.is_file())
"""


@pytest.mark.parametrize("table", ["embedded", "reverb"])
def test_a_run_trains_where_only_what_macos_has_is_there(tmp_path, table):
    if table == "reverb":
        pytest.importorskip("reverb")
    done = _run(_TRAINING, str(tmp_path / "run"), table)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-3:] == ["400", "True", "True"]


def test_cores_are_counted_where_a_process_has_no_share_of_them(elsewhere):
    assert system.available_cores() == os.cpu_count()


def test_memory_is_told_with_and_without_proc(monkeypatch):
    assert 0 < system.free_memory() < 2**62
    monkeypatch.setattr(system, "_PROC", pathlib.Path("/nonexistent"))
    monkeypatch.setattr(system, "_CGROUPS", pathlib.Path("/nonexistent"))
    assert system.free_memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("limit", "used", "stat"),
    [
        ("memory.max", "memory.current", "active_file 20\ninactive_file 10\nanon 500"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "active_file 1\ntotal_active_file 30"),
    ],
)
def test_a_containers_limit_counts_as_memory(tmp_path, monkeypatch, limit, used, stat):
    monkeypatch.setattr(system, "_CGROUPS", tmp_path)
    assert system._free_in_container() == 2**62
    (tmp_path / limit).parent.mkdir(exist_ok=True)
    (tmp_path / limit).write_text("1000\n")
    (tmp_path / used).write_text("600\n")
    (tmp_path / limit).with_name("memory.stat").write_text(stat)
    assert system._free_in_container() == system.free_memory() == 430
    (tmp_path / limit).write_text("max\n")
    assert system._free_in_container() == 2**62
    assert system.free_memory() < 2**62


def test_files_lie_in_memory_where_that_is_shared(monkeypatch):
    assert system.shared_folder() == pathlib.Path("/dev/shm")
    monkeypatch.setattr(os, "access", lambda *arguments: False)
    assert system.shared_folder() != pathlib.Path("/dev/shm")


def test_a_held_lock_is_seen_by_trying(elsewhere, tmp_path):
    run = RunDirectory(tmp_path)
    assert run.holder is None
    with run.lock():
        assert run.holder is not None
        assert run.holder.startswith(f"process {os.getpid()} on ")
    assert run.holder is None


def test_a_look_at_a_lock_does_not_refuse_a_run(elsewhere, tmp_path):
    code = """
import fcntl, sys, time
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_SH)
print(1, flush=True)
time.sleep(float(sys.argv[2]))
"""
    (tmp_path / "lock").touch()
    for seconds, refused in ((0.03, False), (60, True)):
        line = [sys.executable, "-c", code, str(tmp_path / "lock"), str(seconds)]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            other.stdout.readline()
            descriptor = os.open(tmp_path / "lock", os.O_RDWR)
            try:
                if refused:
                    with pytest.raises(BlockingIOError):
                        system.lock(descriptor)
                else:
                    system.lock(descriptor)
            finally:
                os.close(descriptor)
                other.kill()


def test_a_pipe_keeps_its_room_where_it_cannot_be_enlarged(elsewhere):
    reader, writer = os.pipe()
    system.enlarge_pipe(writer, 2**20)
    os.write(writer, b"x")
    assert os.read(reader, 2) == b"x"
    os.close(reader)
    os.close(writer)


def test_private_signals_are_four_that_end_a_process(elsewhere):
    numbers = system.private_signals()
    assert len({*numbers, signal.SIGINT, signal.SIGTERM, signal.SIGUSR2, signal.SIGKILL}) == 8
    for number in numbers:
        with subprocess.Popen(["sleep", "60"]) as process:
            process.send_signal(number)
        assert process.returncode == -number


def test_a_signals_name_is_told():
    assert system.signal_name(9) == "SIGKILL"
    assert system.signal_name(38) == "signal 38"


def test_children_are_found_without_proc(elsewhere):
    with subprocess.Popen(["sleep", "60"]) as process:
        assert process.pid in system.children()
        assert os.getppid() not in system.children()
        process.kill()
    assert process.pid not in system.children()


_ORPHAN = """
import os, sys, time, other_system
from acme_ext.utils import system
if sys.argv[1] == "elsewhere":
    other_system.hide_system()
parent = os.getpid()
if os.fork():
    sys.stdin.readline()  # until the child watches
    os._exit(0)
assert system.signal_at_parents_end(parent, 15)
print(os.getpid(), flush=True)
time.sleep(120)
"""


@pytest.mark.parametrize("where", ["linux", "elsewhere"])
def test_a_process_ends_with_its_parent(where):
    path = os.pathsep.join([str(other_system.CODE_FOLDER), *filter(None, sys.path)])
    line = [sys.executable, "-c", _ORPHAN, where]
    with subprocess.Popen(
        line, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        child = int(parent.stdout.readline())
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.read() == ""  # until the child, which has it too, has ended
    assert child > 0


def test_a_child_is_waited_for_where_waiting_reaps_it(elsewhere):
    (number, *_) = system.private_signals()
    seen = []
    before = signal.signal(number, lambda *_: seen.append(1))
    try:
        code = f"import os, sys; os.kill(os.getppid(), {int(number)}); sys.exit(3)"
        child = subprocess.Popen([sys.executable, "-c", code])
        status = system.wait_for_child(child.pid, [number])
        assert os.waitstatus_to_exitcode(status) == 3
        assert seen == [1]
        assert number in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        child.returncode = 3  # it is reaped
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        signal.signal(number, before)


def test_only_linux_has_namespaces(elsewhere):
    assert isolation.enter() == "only Linux has network namespaces"

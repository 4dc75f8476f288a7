"""What the tests of programs share: programs in processes of their own, which nothing outlives."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

import psutil

from acme_ext import envs
from acme_ext.builders import DQN
from acme_ext.config.assignments import replace_fields
from acme_ext.launch.hosts.interrupt import SAME_REQUEST_S
from acme_ext.launch.runs.saving import BestParams, Counts
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory

PATIENCE_S = 90
MARK = "ACME_EXT_TEST_PROGRAM"  # a variable by which a program's processes are known, whoever their parent is
FIELDS = {
    "hidden_sizes": 8,
    "batch_size": 16,
    "sgd_steps_per_call": 2,
    "replay.samples_per_insert": 4,
    "replay.min_size": 100,
    "replay.n_step": 2,
    "replay.write_burst": 16,
}


class Client:
    """A client of an object in this process, with its `futures`, as Courier's have it."""

    def __init__(self, server):
        self._server = server

    def __getattr__(self, name):
        return getattr(self._server, name)

    @property
    def futures(self):
        return _Futures(self._server)


class _Futures:
    def __init__(self, server):
        self._server = server

    def __getattr__(self, name):
        def call(*arguments):
            future = futures.Future()
            try:
                future.set_result(getattr(self._server, name)(*arguments))
            except Exception as error:
                future.set_exception(error)
            return future

        return call


class Running:
    """A program in a process group of its own, as a terminal gives a command one.

    What it prints goes to files in `folder`, which is made.
    """

    def __init__(self, line: list[str], run: Path, folder: Path, **variables: str):
        self.run, self.mark = run, uuid.uuid4().hex
        self._out, self._err, self._hanging = (folder / name for name in ("out", "err", "hanging"))
        self._hanging.mkdir(parents=True)
        # Ray starts a dozen processes, of which each imports it; Launchpad one for each node, which imports everything.
        self._patience_s = 3 * PATIENCE_S if {"ray", "local_mp"} & set(line) else PATIENCE_S
        self._opened: set[int] = set()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), MARK: self.mark}
        environment = {**environment, "LAB_WALK_HANGS_IN": str(self._hanging), **variables}
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(line, env=environment, stdout=out, stderr=err, start_new_session=True)

    def out(self) -> str:
        """Returns what it has printed."""
        return self._out.read_text()

    def err(self) -> str:
        """Returns what it has printed on stderr."""
        return self._err.read_text()

    def hanging(self) -> int:
        """Returns how many environments stand still (with LAB_WALK_HANGS_AT)."""
        return len(list(self._hanging.iterdir()))

    def processes(self) -> list[psutil.Process]:
        """Returns every process of the program that runs."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == self.mark:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def subreaper(self) -> psutil.Process:
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def supervisor(self) -> psutil.Process:
        (child,) = self.subreaper().children()
        return child

    def servers(self) -> list[psutil.Process]:
        """Returns the processes that environments have started (with LAB_WALK_SERVER)."""
        return [process for process in self.processes() if "time.sleep(1000)" in process.cmdline()[-1]]

    def node(self, name: str) -> psutil.Process:
        """Returns the process of a node."""
        end = f"/{name}.log"
        return next(p for p in self.supervisor().children() if _output(p).endswith(end))

    def node_of_host(self, name: str) -> psutil.Process | None:
        """Returns the process of a node that runs anywhere on this machine, by its log, or None."""
        log = str(self.run / "logs" / "nodes" / f"{name}.log")
        for process in psutil.process_iter():
            try:
                if os.readlink(f"/proc/{process.pid}/fd/1") == log and process.status() != psutil.STATUS_ZOMBIE:
                    return process
            except (OSError, psutil.Error):
                continue
        return None

    def listening(self) -> list[int]:
        """Returns the ports that the program listens on, in the network where it does."""
        inodes = set()
        for process in self.processes():
            for link in Path(f"/proc/{process.pid}/fd").iterdir():
                try:
                    inodes.add(os.readlink(link))
                except OSError:
                    continue
        supervisor = self.supervisor().pid
        lines = [line.split() for name in ("tcp", "tcp6") for line in _lines(f"/proc/{supervisor}/net/{name}")]
        ports = [_port(words) for words in lines if f"socket:[{words[9]}]" in inodes]
        self._opened |= set(ports)
        return ports

    def steps(self) -> int:
        """Returns the step of the last row that an actor logged."""
        return int(max(rows(self.run, "actor"), default=0))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._patience_s
        while not condition():
            assert self.process.poll() is None, (self.out(), self.err())
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def interrupt(self) -> None:
        """What a terminal does at Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def interrupt_again(self) -> None:
        """Interrupts a program that has been interrupted: late enough, since of two signals at once it counts one."""
        self.wait_for(lambda: "stopping after a last save; Ctrl-C again stops at once." in self.err())
        time.sleep(2 * SAME_REQUEST_S)
        self.interrupt()

    def end(self) -> tuple[int, str, str]:
        """Waits for the end and checks that nothing is left; returns the exit code, stdout and stderr."""
        self.process.wait(self._patience_s)
        deadline = time.monotonic() + self._patience_s  # what dies with a killed parent takes a moment
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert left == []
        assert not self._opened & listening_here()
        return self.process.returncode, self.out(), self.err()


def _output(process: psutil.Process) -> str:
    """Returns where a process's output goes; nothing if it has just ended."""
    try:
        return os.readlink(f"/proc/{process.pid}/fd/1")
    except OSError:
        return ""


def check_second_interrupt(program: Running) -> None:
    """Interrupts a program twice, and checks that it ends at once."""
    program.interrupt()
    program.interrupt_again()
    code, _, err = program.end()
    assert code == 128 + signal.SIGINT
    assert "Traceback" not in err


def check_a_last_save_that_fails(program: Running, learner: psutil.Process) -> None:
    """Interrupts a program, kills its learner before it has saved, and checks that this is told."""
    learner.suspend()
    program.interrupt()
    program.wait_for(lambda: "stopping after a last save; Ctrl-C again stops at once." in program.err())
    learner.kill()
    code, out, err = program.end()
    assert (code, out) == (1, "")
    assert re.search(r"^acme-ext: learner( on [\d.]+)? was killed by SIGKILL", err, re.MULTILINE)
    assert "acme-ext: so there is no last save, and the last checkpoint stands.\n" in err


def check_finished(run: Path, out: str, steps: int, more: int) -> None:
    """Checks what a program of two actors has left that came to its budget, or up to so many steps past it."""
    assert steps <= saved(run)[-1] <= steps + more
    assert re.search(r"^evaluation  return \d", out, re.MULTILINE)
    assert (run / "curve.png").is_file()
    # It may be of an evaluation that a kill has cut out of the log.
    assert BestParams(RunDirectory.open(run)).mean >= max(rows(run, "evaluator", "episode_return_mean")) - 1e-4
    for label in ("actor", "learner"):
        logged = rows(run, label)
        assert logged == sorted(logged)
        assert logged[-1] <= saved(run)[-1]
    assert set(rows(run, "actor", "actor")) == {0, 1}


def listening_here() -> set[int]:
    """Returns the ports that anybody listens on in this process's network."""
    return {_port(line.split()) for name in ("tcp", "tcp6") for line in _lines(f"/proc/self/net/{name}")}


def _port(words: list[str]) -> int:
    return int(words[1].rpartition(":")[2], 16)


def _lines(path: str) -> list[str]:
    return [line for line in Path(path).read_text().splitlines()[1:] if line.split()[3] == "0A"]


def rows(run: Path, label: str, name: str = "environment_steps") -> list[float]:
    """Returns a column of a run's log."""
    path = run / f"logs/{label}.csv"
    columns = loggers.read_csv(path) if path.is_file() else {}
    return columns[name].tolist() if columns else []


def saved(run: Path) -> list[int]:
    """Returns the steps of a run's checkpoints."""
    folder = run / "checkpoints"
    return sorted(int(path.name) for path in folder.glob("[0-9]" * 12)) if folder.is_dir() else []


def state(run: Path, shards: int = 1) -> tuple[int, int, int]:
    """Returns the environment's steps, the rows inserted (into all shards) and the learner's steps in a run's last
    checkpoint.
    """
    restored = CheckpointStore(run / "checkpoints").restore({})
    assert restored is not None
    counts = Counts.of_state(restored.info["state"])
    with envs.make("gym:lab_walk:LabWalk-v0") as environment:
        fields = {name: str(value) for name, value in FIELDS.items()}
        replay = DQN(replace_fields(DQN().config, fields)).make_agent(envs.make_spec(environment)).replay
    inserted = 0
    for shard in range(shards):
        server = ReverbStore(replay, restore=restored.path / "replay" / str(shard))
        try:
            inserted += server.table.counts()[:2][0]
        finally:
            server.close()
    return counts.environment_steps, inserted, counts.learner_steps


# The cluster lives in a process of its own, since Ray takes hold of the one that it is in. It reads a line for each
# thing to do, and answers each.
_CLUSTER = """
import pathlib, sys
from ray.cluster_utils import Cluster

cluster = Cluster()
options = dict(num_gpus=0, object_store_memory=80 * 2**20)
head = cluster.add_node(num_cpus=4, resources={"base": 9}, include_dashboard=False, **options)
# Addresses of their own, and a driver that takes the head's for its own: each host writes its address to the same file.
hosts, addresses = {}, (f"127.0.0.{number}" for number in range(2, 255))
file = pathlib.Path(head.get_session_dir_path()) / "node_ip_address.json"
address_of_head = file.read_text()
print(cluster.address, flush=True)
for line in sys.stdin:
    what, name = line.split()
    if what == "add":
        address = next(addresses)
        hosts[name] = cluster.add_node(num_cpus=4, resources={"field": 9}, node_ip_address=address, **options)
        cluster.wait_for_nodes()
        file.write_text(address_of_head)
    else:
        cluster.remove_node(hosts.pop(name), allow_graceful=False)
    print("done", flush=True)
cluster.shutdown()
"""


class Cluster:
    """A cluster of Ray's, with hosts to add and to remove; all are this machine."""

    def __init__(self, folder: Path):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CLUSTER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "cluster.log").open("w"),
            text=True,
        )
        self.address = self._read()

    def do(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._read() == "done"

    def names(self) -> list[str]:
        """Returns the names that actors have."""
        code = f"""if True:
            import ray
            ray.init({self.address!r}, log_to_driver=False, logging_level="ERROR")
            print(*(actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)), sep="\\n")
        """
        line = [sys.executable, "-c", code]
        return subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

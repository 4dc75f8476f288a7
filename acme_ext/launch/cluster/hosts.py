"""Runs that are commands, each on whichever host of a Ray cluster has room for it.

Ray reserves what a run asks for. A run is a process of its own, and leaves everything in a directory that all hosts
must share. It is told to end when whoever started it has.
"""

import contextlib
import fcntl
import importlib.util
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.cluster import agent, connection, placement
from acme_ext.launch.processes import launcher
from acme_ext.utils import install

_ANSWER_S = 60.0  # that a host has to answer before its run is taken for lost
_LOOK_S = 0.1
_PROCESS = ".process"  # after a run's directory: the file that its process holds a lock on


class Runner:
    """The Ray actor that starts a run on the host where it is, and looks after it. It imports nothing heavy."""

    def __init__(self):
        self._process: subprocess.Popen | None = None

    def begin(
        self, child: str, command: Sequence[str], run_dir: str, token: str, path: Sequence[str], threads: str | None
    ) -> str | None:
        """Starts a run, and returns None; or the address of this host, where the directory is another.

        Args:
            child: what Python runs; its first argument is the process that it must not outlive.
            command: its further arguments.
            run_dir: the run's directory. A former run in it that is about to end is waited for.
            token: what the file beside the run's directory holds, `DIRECTORY.process`, where it is the one of whoever
                starts the run.
            path: where modules are found, see `agent.environment_of`.
            threads: `OMP_NUM_THREADS`, which Ray sets for itself; None for unset.
        """
        import ray

        try:
            lock = os.open(f"{run_dir}{_PROCESS}", os.O_RDWR)
        except FileNotFoundError:
            return ray.util.get_node_ip_address()
        try:
            if os.read(lock, len(token)) != token.encode():
                return ray.util.get_node_ip_address()
            fcntl.flock(lock, fcntl.LOCK_EX)
            with open(f"{run_dir}.log", "ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", child, str(os.getpid()), *command],
                    env=agent.environment_of(path, {"OMP_NUM_THREADS": threads}),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(lock,),  # it is held for as long as the run's process is there
                )
        finally:
            os.close(lock)
        return None

    def poll(self) -> int | None:
        """Returns the run's exit code; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def signal(self, number: int) -> None:
        """Sends the run a signal."""
        assert self._process is not None
        self._process.send_signal(number)


class OnHost:
    """A run on some host, seen from here: as much of `subprocess.Popen` as is needed."""

    def __init__(self, runner: Any, begun: Any, directory: Path):
        self._runner, self._begun, self._directory = runner, begun, directory
        self.returncode: int | None = None
        self.lost = False
        """Whether its host was lost, or Ray's process that looked after it."""

    def poll(self) -> int | None:
        """Returns its exit code; None while it runs, or waits for a place on a host."""
        if self.returncode is None and self._has_begun():
            self._end(self._answer(self._runner.poll.remote()))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends it a signal; one that has no place yet ends by it."""
        if self.returncode is None and self._has_begun():
            self._answer(self._runner.signal.remote(number))
        elif self.returncode is None:
            self._end(-number)

    def wait(self) -> int | None:
        """Waits until it has ended; returns its exit code."""
        while self.poll() is None:
            time.sleep(_LOOK_S)
        return self.returncode

    def _has_begun(self) -> bool:
        import ray

        if self._begun is None:
            return True
        if not ray.wait([self._begun], timeout=0)[0]:
            return False
        elsewhere = self._answer(self._begun)
        if elsewhere is not None:
            raise UsageError(
                f"a run was placed on {elsewhere}, where {self._directory.absolute()} is not the same folder as here: "
                "choose one that all hosts share."
            )
        self._begun = None
        return not self.lost

    def _answer(self, question: Any) -> Any:
        import ray
        from ray import exceptions

        try:
            return ray.get(question, timeout=_ANSWER_S)
        except (exceptions.RayActorError, exceptions.GetTimeoutError):
            self.lost = True
            self._end(-signal.SIGKILL)
        except exceptions.RayTaskError as error:
            raise RunError(f"a host could not start a run: {error.cause}") from error
        except exceptions.RayError as error:
            raise RunError(f"Ray failed: {error}") from error

    def _end(self, code: int | None) -> None:
        import ray
        from ray.exceptions import RayError

        if code is not None and self.returncode is None:
            self.returncode = code
            with contextlib.suppress(RayError):
                ray.kill(self._runner)  # what is reserved for it is free again


class Cluster:
    """A Ray cluster that this machine is a part of, to run commands on.

    Args:
        directory: of all runs.
        asked: what each run asks of Ray, as `{"CPU": 1.0}`.
    """

    def __init__(self, directory: Path, asked: Mapping[str, float]):
        import ray

        self._directory = directory
        amounts = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(there.get(name, 0) >= amount for name, amount in asked.items()) for there in amounts):
            wanted = ", ".join(f"{amount:g} {name}" for name, amount in asked.items())
            raise UsageError(f"no host of the cluster has what each run asks for: {wanted}.")
        self._options = placement.actor_options(asked)
        code = launcher.code_folder()
        self._path = launcher.module_folders(code)

    def start(self, child: str, command: Sequence[str], run_dir: Path) -> OnHost:
        """Starts a run where Ray has, or will have, room for it."""
        import ray

        token = uuid.uuid4().hex
        Path(f"{run_dir}{_PROCESS}").write_text(token)  # in place, for a process that is about to end may hold it
        runner: Any = ray.remote(max_restarts=0)(Runner).options(**self._options).remote()
        threads = os.environ.get("OMP_NUM_THREADS")
        run = (child, list(command), str(run_dir.absolute()))
        return OnHost(runner, runner.begin.remote(*run, token, self._path, threads), self._directory)

    def close(self) -> None:
        """Leaves the cluster."""
        import ray

        ray.shutdown()


@contextlib.contextmanager
def joined(address: str | None, directory: Path, asked: Mapping[str, float]) -> Iterator[Cluster]:
    """Joins a cluster, and leaves it at the end.

    Args:
        address: of the cluster; None: as `RAY_ADDRESS` says, or the one that runs here.
        directory: of all runs.
        asked: what each run asks of Ray.

    Raises:
        UsageError: there is no such cluster, or none of its hosts has what a run asks for.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError(f"runs on Ray need the extra `ray`, not installed here: {install.command('ray')}")
    connection.connect(connection.address_of(address) or "auto", launcher.code_folder(), directory.absolute())
    with contextlib.closing(Cluster(directory, asked)) as cluster:
        yield cluster

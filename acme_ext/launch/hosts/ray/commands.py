"""Runs commands on any hosts of a Ray cluster that have the resources.

Ray reserves the resources of a run. A run is a separate process, and writes everything to a directory that all hosts
must share. It must end when the process that started it has ended.
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
from acme_ext.launch.hosts import launcher
from acme_ext.launch.hosts.ray import connection, placement, proxy
from acme_ext.utils import install

_ANSWER_S = 60.0  # time for a host's answer, before its run counts as lost
_LOOK_S = 0.1
_PROCESS = ".process"  # suffix of the file beside a run's directory that its process locks


class Runner:
    """The Ray actor that starts a run on its host and watches it. It imports nothing heavy."""

    def __init__(self):
        self._process: subprocess.Popen | None = None

    def begin(
        self, child: str, command: Sequence[str], run_dir: str, token: str, path: Sequence[str], threads: str | None
    ) -> None:
        """Starts a run.

        Args:
            child: the Python code to run; its first argument is the pid of a process that it must not outlive.
            command: the further arguments.
            run_dir: the run's directory. If an earlier run in it is still ending, waits for it.
            token: the content of the file `DIRECTORY.process` beside the run's directory, if the host shares it.
            path: folders of modules, see `proxy.environment_of`.
            threads: `OMP_NUM_THREADS`, which Ray sets for itself; None for unset.

        Raises:
            UsageError: this host doesn't share the directory; the message is the host's address.
        """
        import ray

        file = Path(f"{run_dir}{_PROCESS}")
        if not file.exists() or file.read_text() != token:
            raise UsageError(ray.util.get_node_ip_address())
        lock = os.open(file, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with open(f"{run_dir}.log", "ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", child, str(os.getpid()), *command],
                    env=proxy.environment_of(path, {"OMP_NUM_THREADS": threads}),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(lock,),  # the run's process holds the lock until it ends
                )
        finally:
            os.close(lock)

    def poll(self) -> int | None:
        """Returns the run's exit code; None while it is running."""
        assert self._process is not None
        return self._process.poll()

    def signal(self, number: int) -> None:
        """Sends the run a signal."""
        assert self._process is not None
        self._process.send_signal(number)


class OnHost:
    """A run on some host, with the necessary part of the interface of `subprocess.Popen`."""

    def __init__(self, runner: Any, begun: Any, directory: Path):
        self._runner, self._begun, self._directory = runner, begun, directory
        self.returncode: int | None = None
        self.lost = False
        """Whether its host, or the Ray process that watches it, was lost."""

    def poll(self) -> int | None:
        """Returns its exit code; None while it is running or waits for a host."""
        if self.returncode is None and self._has_begun():
            self._end(self._answer(self._runner.poll.remote()))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends it a signal; a run that still waits for a host ends."""
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

        if self._begun is not None and ray.wait([self._begun], timeout=0)[0]:
            self._answer(self._begun)
            self._begun = None
        return self._begun is None and not self.lost

    def _answer(self, question: Any) -> Any:
        import ray
        from ray import exceptions

        try:
            return ray.get(question, timeout=_ANSWER_S)
        except (exceptions.RayActorError, exceptions.GetTimeoutError):
            self.lost = True
            self._end(-signal.SIGKILL)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, UsageError):
                raise UsageError(
                    f"a run was placed on {error.cause}, where {self._directory.absolute()} is not the same folder as "
                    "here: choose one that all hosts share."
                ) from error
            raise RunError(f"a host could not start a run: {error.cause}") from error
        except exceptions.RayError as error:
            raise RunError(f"Ray failed: {error}") from error

    def _end(self, code: int | None) -> None:
        import ray
        from ray.exceptions import RayError

        if code is not None and self.returncode is None:
            self.returncode = code
            with contextlib.suppress(RayError):
                ray.kill(self._runner)  # frees its reserved resources


class Cluster:
    """A Ray cluster that includes this machine, for running commands.

    Args:
        directory: the directory of all runs.
        asked: the resources that each run requests, such as `{"CPU": 1.0}`.
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
        """Starts a run on a host with enough resources, once Ray has one."""
        import ray

        token = uuid.uuid4().hex
        Path(f"{run_dir}{_PROCESS}").write_text(token)  # not replaced: a process that is ending may lock it
        runner: Any = ray.remote(max_restarts=0)(Runner).options(**self._options).remote()
        threads = os.environ.get("OMP_NUM_THREADS")
        run = (child, list(command), str(run_dir.absolute()))
        return OnHost(runner, runner.begin.remote(*run, token, self._path, threads), self._directory)


@contextlib.contextmanager
def joined(address: str | None, directory: Path, asked: Mapping[str, float]) -> Iterator[Cluster]:
    """Joins a cluster, and leaves it at the end.

    Args:
        address: address of the cluster; None for the one in `RAY_ADDRESS`, or the one that runs on this machine.
        directory: the directory of all runs.
        asked: the resources that each run requests.

    Raises:
        UsageError: there is no such cluster, or none of its hosts has the resources that a run requests.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError(f"runs on Ray need the extra `ray`, not installed here: {install.command('ray')}")
    connection.connect(connection.address_of(address) or "auto", launcher.code_folder(), directory.absolute())
    import ray

    try:
        yield Cluster(directory, asked)
    finally:
        ray.shutdown()

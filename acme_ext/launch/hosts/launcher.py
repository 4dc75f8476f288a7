"""The launcher's side of a program: it starts the subreaper, sends it the program, and waits.

The supervisor first imports its libraries, which takes seconds, and needs the program only then. So a command starts
the supervisor (`prestart`) before it does its own imports. This module imports nothing heavy.
"""

import contextlib
import math
import os
import pathlib
import signal
import site
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from typing import Any

from acme_ext.launch.hosts import interrupt, process_tree

_prestarted: "list[Launch]" = []  # without a program yet


class Launch:
    """Starts a subreaper, with a supervisor as its child, and runs a program with it.

    Args:
        entry: the module of `launch.hosts` that has the supervisor, see `subreaper.main`.
        private: whether the program gets its own network namespace.
    """

    def __init__(self, entry: str, private: bool):
        self.entry, self.private, self._passed_on = entry, private, -math.inf
        reader, self._writer = os.pipe()
        arguments = [entry, reader, os.getpid(), int(private)]
        line = [sys.executable, "-m", "acme_ext.launch.hosts.subreaper", *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(module_folders(None))}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [*process_tree.REQUESTS, *process_tree.REQUESTS.values()])
        try:
            self._process = subprocess.Popen(line, env=environment, pass_fds=[reader])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(reader)

    def run(self, payload: Any) -> int:
        """Runs `payload` and returns the exit code."""
        import cloudpickle

        given = cloudpickle.dumps((dict(os.environ), module_folders(None), cloudpickle.dumps(payload)))
        with contextlib.suppress(BrokenPipeError), open(self._writer, "wb", closefd=False) as pipe:
            pipe.write(given)  # if the process has ended, its exit code tells
        return self._process.wait()

    def pass_on(self, number: int) -> None:
        """Passes on a stop request to the supervisor, which handles it."""
        if time.monotonic() - self._passed_on > interrupt.SAME_REQUEST_S:
            self._passed_on = time.monotonic()
            self._process.send_signal(process_tree.REQUESTS[signal.Signals(number)])

    def close(self) -> None:
        """Ends the subreaper, if it has not ended."""
        os.close(self._writer)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def receive(reader: int) -> Any:
    """Waits for the launcher's payload and returns it; None if the launcher has given up."""
    import cloudpickle

    with open(reader, "rb") as pipe:
        try:
            environment, folders, payload = cloudpickle.load(pipe)
        except EOFError:
            return None
    # Since this process started, the launcher's imports may have set variables and extended the module path.
    os.environ.update({**environment, "PYTHONPATH": os.pathsep.join(folders)})
    sys.path += [folder for folder in folders if folder not in sys.path]
    return cloudpickle.loads(payload)


@contextlib.contextmanager
def prestart(entry: str, private: bool) -> Iterator[None]:
    """Starts a subreaper for the next `run` with the same arguments, and ends it if there was no such run."""
    launch = Launch(entry, private)
    _prestarted.append(launch)
    try:
        yield
    finally:
        if launch in _prestarted:
            _prestarted.remove(launch)
            launch.close()


def run(entry: str, payload: Any, private: bool) -> int:
    """Runs a program below a subreaper; returns its exit code.

    See `Launch` and `subreaper.main` for the arguments.

    Stop requests are passed on from the start.
    """
    launch: Launch | None = None
    started = threading.Event()

    def pass_on(number: int) -> None:
        started.wait()
        if launch is not None:
            launch.pass_on(number)

    with interrupt.install_handler(pass_on):
        try:
            there = bool(_prestarted) and (_prestarted[-1].entry, _prestarted[-1].private) == (entry, private)
            launch = _prestarted.pop() if there else Launch(entry, private)
        finally:
            started.set()
        with contextlib.closing(launch):
            return launch.run(payload)


def code_folder() -> pathlib.Path:
    """Returns the folder with the user's code: the working directory, or the folder of a script outside it."""
    here, main = pathlib.Path.cwd(), sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None:  # an interactive session, or `python -m`
        return here
    folder = pathlib.Path(file).resolve().parent
    return here if folder.is_relative_to(here) or folder.is_relative_to(pathlib.Path(sys.prefix)) else folder


def module_folders(code: pathlib.Path | None) -> list[str]:
    """Returns the module folders of this process; folders inside `code` are relative to it.

    The interpreter's own folders are left out, since an environment may start another interpreter.
    """
    names = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = [pathlib.Path(name).resolve() for name in [*names, *site.getsitepackages(), site.getusersitepackages()]]
    zipped = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    found = []
    for entry in (pathlib.Path(name).resolve() for name in sys.path):
        if not entry.exists() or entry.name == zipped or any(entry.is_relative_to(folder) for folder in own):
            continue
        inside = code is not None and entry.is_relative_to(code)
        found.append(str(entry.relative_to(code) if code is not None and inside else entry))
    return found

"""Runs notebook cells in a kernel of Python 3.10, for notebooks on a Python without Reverb and Launchpad.

If Reverb is installed, nothing is done. Otherwise, as in Colab, uv creates an environment of Python 3.10 with the
tested versions, and a kernel is started in it. All later cells run there unchanged. Their output, progress, errors,
questions (`input`) and interrupts are passed on. Completion and widgets are not.

The notebook needs IPython, jupyter_client and pyzmq, which every notebook has, and this package without dependencies.
"""

import atexit
import contextlib
import fcntl
import getpass
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from acme_ext.utils import availability, install, libpython

_POLL_MS = 1_000  # between checks of whether the kernel is alive
_START_S = 120
_END_S = 3

_kernel: "_Kernel | None" = None


def use_python310(*extras: str) -> None:
    """Runs the cells after this one in a kernel of Python 3.10 with acme_ext, if this kernel has no Reverb.

    Args:
        extras: extras of the package that the notebook needs, such as `bsuite`.

    Raises:
        RuntimeError: the environment could not be created, or its kernel did not start.
    """
    global _kernel
    if availability.has_reverb():
        return
    begin = time.monotonic()
    import IPython

    shell: Any = IPython.get_ipython()  # pyright: ignore[reportPrivateImportUsage]
    if shell is None:
        raise RuntimeError("cells can be handed to another kernel in a notebook only.")
    version = ".".join(map(str, sys.version_info[:2]))
    python = _environment(extras, f"this kernel is Python {version}, and Reverb and Launchpad need 3.10")
    _kernel = _Kernel(python)
    atexit.register(_kernel.close)
    shell.input_transformers_cleanup.append(_handed_over)
    print(f"ready in {time.monotonic() - begin:.0f} s: the next cells run in Python 3.10, {python.parents[1]}")


def run(code: str) -> "_Shown | None":
    """Runs a cell in the kernel of Python 3.10, and returns its value for display; every cell becomes such a call."""
    global _kernel
    if _kernel is None:
        raise RuntimeError("the kernel of Python 3.10 is gone: run the notebook from its first cell on.")
    try:
        return _kernel.run(code)
    except _DiedError as error:
        _kernel.close()
        _kernel = None
        import IPython

        shell: Any = IPython.get_ipython()  # pyright: ignore[reportPrivateImportUsage]
        shell.input_transformers_cleanup.remove(_handed_over)
        raise RuntimeError(f"{error} Run the notebook from its first cell on, which starts another.") from None


def _handed_over(lines: list[str]) -> list[str]:
    """Transforms a cell, for IPython, into one that runs it in the other kernel."""
    code = "".join(lines)
    return [f"__import__({__name__!r}, fromlist=['run']).run({code!r})\n"] if code.strip() else lines


def _environment(extras: tuple[str, ...], why: str) -> pathlib.Path:
    """Returns the Python 3.10 of an environment with this package; creates the environment if necessary."""
    requirement = _requirement(extras)
    package = ["--editable", requirement] if install.checkout() else [requirement]  # changes of a checkout count
    made_from = f"{' '.join(package)}\n{install.CONSTRAINTS.read_text(encoding='utf-8')}"
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "acme_ext" / f"python3.10-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}"
    python, stamp = folder / "bin" / "python", folder / "made-from"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another notebook may be making it
        if not stamp.is_file():
            print(f"{why}: an environment for it is made, which takes a minute or two", flush=True)
            _make(folder, package)
            stamp.write_text(made_from, encoding="utf-8")
    return python


def _make(folder: pathlib.Path, package: list[str]) -> None:
    """Makes an environment of Python 3.10 with this package, which is given as arguments of pip."""
    python, uv = folder / "bin" / "python", _uv()
    shutil.rmtree(folder, ignore_errors=True)
    _call(*uv, "venv", "--quiet", "--python", "3.10", folder)
    if subprocess.run([python, libpython.__file__], capture_output=True, check=False).returncode:
        shutil.rmtree(folder)
        _call(*uv, "venv", "--quiet", "--python-preference", "only-managed", "--python", "3.10", folder)
    what = ["--constraint", install.CONSTRAINTS, *package, "ipykernel"]
    _call(*uv, "pip", "install", "--quiet", "--python", python, *what)
    # This shows at once whether the compiled packages are compatible, and writes bytecode for later imports.
    _call(python, "-c", "import acme_ext, reverb, courier, launchpad, acme, jax, haiku, optax, matplotlib.pyplot")


def _requirement(extras: tuple[str, ...]) -> str:
    """Returns the pip requirement for this version of the package, from the same source as here."""
    name = f"acme-ext[{','.join(extras)}]" if extras else "acme-ext"
    if source := install.checkout():
        return f"{name} @ {source.as_uri()}"
    found = importlib.metadata.distribution("acme-ext")
    direct = found.read_text("direct_url.json")
    if direct is None:
        return f"{name}=={found.version}"
    origin = json.loads(direct)
    version_control = origin.get("vcs_info")
    if version_control:
        return f"{name} @ {version_control['vcs']}+{origin['url']}@{version_control['commit_id']}"
    return f"{name} @ {origin['url']}"


def _uv() -> list[str]:
    """Returns the command uv; installs uv if necessary."""
    if found := shutil.which("uv"):
        return [found]
    if not importlib.util.find_spec("uv"):
        _call(sys.executable, "-m", "pip", "install", "--quiet", "uv")
        importlib.invalidate_caches()
    return [sys.executable, "-m", "uv"]


def _call(*command: str | os.PathLike[str]) -> None:
    """Runs a command; if it fails, raises RuntimeError with its last lines of output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        words = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{words}")


class _DiedError(Exception):
    """The kernel has ended by itself."""


class _Shown:
    """The value of a cell, with the other kernel's representations for display."""

    def __init__(self, content: dict[str, Any]):
        self._data, self._metadata = content["data"], content["metadata"]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._data, self._metadata

    def __repr__(self) -> str:
        return self._data.get("text/plain", "")


class _Kernel:
    """A kernel of another interpreter in a separate process, with Jupyter's protocol over sockets in a folder."""

    def __init__(self, python: pathlib.Path):
        import zmq
        from jupyter_client.client import KernelClient
        from jupyter_client.session import Session

        self._session = Session(key=secrets.token_hex(32).encode())
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        # The folder holds the key, so only this user can read it. It is not needed once both sides are connected.
        with tempfile.TemporaryDirectory(prefix="acme_ext-") as folder:
            file, path = os.path.join(folder, "kernel.json"), os.path.join(folder, "k")
            client: Any = KernelClient(
                connection_file=file, transport="ipc", ip=path, session=self._session, context=self._context
            )
            client.write_connection_file()
            own = self._session.bsession
            self._sockets = {"iopub": client.connect_iopub(), "shell": client.connect_shell(own)}
            self._sockets |= {"stdin": client.connect_stdin(own), "control": client.connect_control(own)}
            for name in ("iopub", "shell", "stdin"):
                self._poller.register(self._sockets[name], zmq.POLLIN)
            log = pathlib.Path(folder, "log")
            with log.open("wb") as out:
                # In a new session, so that an interrupt reaches the kernel only once, through `run`.
                self._process = subprocess.Popen(
                    [python, "-m", "ipykernel_launcher", "-f", file],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    env=_variables(python),
                )
            try:
                self._wait_for_start()
            except BaseException as error:
                self.close()
                if isinstance(error, _DiedError):
                    raise RuntimeError(f"{error}\n{log.read_text(errors='replace')[-2_000:]}") from None
                raise

    def run(self, code: str) -> _Shown | None:
        """Runs a cell, passes on its output, and returns its value for display; raises the cell's error."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": True,
            "stop_on_error": True,
        }
        message: Any = self._session.msg("execute_request", content)
        self._session.send(self._sockets["shell"], message)
        request = message["header"]["msg_id"]
        shown, failed, replied, idle = None, None, False, False
        with _interrupts_go_to(self._process):
            while not (replied and idle):
                for name, message in self._received():
                    own, kind = message["parent_header"].get("msg_id") == request, message["header"]["msg_type"]
                    content = message["content"]
                    if name == "shell":
                        replied |= own
                    elif name == "stdin":
                        self._answer(content)
                    elif kind == "status":
                        idle |= own and content["execution_state"] == "idle"
                    elif kind == "execute_result":
                        shown = _Shown(content)
                    elif kind == "error":
                        failed = content
                    else:
                        _show(kind, content)
        if failed is not None:
            raise _error(failed)
        return shown

    def close(self) -> None:
        """Ends the kernel."""
        if self._process.poll() is None:
            self._session.send(self._sockets["control"], "shutdown_request", {"restart": False})
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._context.destroy(linger=0)

    def _received(self) -> list[tuple[str, dict[str, Any]]]:
        """Waits for messages for a while; raises if the kernel has died."""
        ready = dict(self._poller.poll(_POLL_MS))
        if not ready and (code := self._process.poll()) is not None:
            raise _DiedError(f"the kernel of Python 3.10 has ended with exit code {code}.")
        # Output comes first, so that all of it is shown before a question is asked.
        found = []
        for name in ("iopub", "shell", "stdin"):
            if self._sockets[name] in ready:
                _, message = self._session.recv(self._sockets[name])
                found.append((name, message))
        return found

    def _wait_for_start(self) -> None:
        """Waits until the kernel answers, and until its output arrives."""
        deadline, heard = time.monotonic() + _START_S, set()
        while not {"shell", "iopub"} <= heard:
            self._session.send(self._sockets["shell"], "kernel_info_request", {})
            heard |= {name for name, _ in self._received()}
            if time.monotonic() > deadline:
                raise _DiedError(f"the kernel of Python 3.10 did not answer within {_START_S} s.")

    def _answer(self, question: dict[str, Any]) -> None:
        try:
            with _interrupts_go_to(None):
                value = (getpass.getpass if question["password"] else input)(question["prompt"])
        except KeyboardInterrupt:
            self._process.send_signal(signal.SIGINT)
        else:
            self._session.send(self._sockets["stdin"], "input_reply", {"value": value})


def _variables(python: pathlib.Path) -> dict[str, str]:
    """Returns the kernel's environment variables: the host's, except those for its Python, plots and IPython."""
    own = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "MPLBACKEND", "IPYTHONDIR")
    variables = {name: value for name, value in os.environ.items() if name not in own}
    # The kernel ends when its parent is another process than this one.
    return {
        **variables,
        "JPY_PARENT_PID": str(os.getpid()),
        "IPYTHONDIR": str(python.parents[1] / "ipython"),
        "PATH": f"{python.parent}{os.pathsep}{variables.get('PATH', os.defpath)}",
    }


@contextlib.contextmanager
def _interrupts_go_to(process: "subprocess.Popen[bytes] | None") -> Any:
    """Passes SIGINT on to a process inside this context, or raises KeyboardInterrupt if there is no process."""
    handler = signal.default_int_handler if process is None else lambda *_: process.send_signal(signal.SIGINT)
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _show(kind: str, content: dict[str, Any]) -> None:
    """Shows the other kernel's output."""
    from IPython.display import clear_output, publish_display_data

    if kind == "stream":
        stream = getattr(sys, content["name"])
        stream.write(content["text"])
        stream.flush()
    elif kind in ("display_data", "update_display_data"):
        update = {"update": True} if kind == "update_display_data" else {}
        publish_display_data(content["data"], content["metadata"], transient=content.get("transient"), **update)
    elif kind == "clear_output":
        clear_output(wait=content["wait"])


def _error(content: dict[str, Any]) -> Exception:
    """Returns an error that is displayed like the other kernel's, with its name, message and traceback."""

    def render(self: Exception) -> list[str]:
        return content["traceback"]

    return type(content["ename"], (Exception,), {"_render_traceback_": render})(content["evalue"])

"""Runs the notebooks as a reader would, in a kernel of this Python and in one of 3.12."""

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

import archives
import nbclient
import nbformat
import pytest

# What Colab has on Python 3.12, as of November 2026.
COLAB = ["ipykernel==6.17.1", "ipython==7.34.0", "jupyter_client==7.4.9"]
_COLABS = ("ipykernel==", "ipython==", "jupyter-client==")

Execute = Callable[..., nbformat.NotebookNode]


@pytest.fixture(scope="module", params=["3.10", pytest.param("3.12", marks=pytest.mark.release)])
def python(request, tmp_path_factory) -> pathlib.Path:
    """The Python of the kernel that notebooks are opened in: this one, or a 3.12 that has what Colab's kernel has."""
    if request.param == "3.10":
        return pathlib.Path(sys.executable)
    newer = archives.newer_python()
    if newer is None:
        pytest.skip("there is no Python 3.12 here")
    venv = tmp_path_factory.mktemp("colab") / "venv"
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--seed", "--python", str(newer), str(venv)], check=True)
    subprocess.run([*uv, "pip", "install", "--python", str(venv), *COLAB], check=True)
    return venv / "bin" / "python"


@pytest.fixture(scope="module")
def execute(python, tmp_path_factory) -> Execute:
    """Executes a notebook, and returns it with its outputs."""
    home = tmp_path_factory.mktemp("jupyter")
    # A kernel that is found before any other of the same name; nothing is read from or written to the user's own
    # Jupyter and IPython folders.
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (home / "kernels" / "python3").mkdir(parents=True)
    spec = {"argv": argv, "display_name": "Python 3", "language": "python"}
    (home / "kernels" / "python3" / "kernel.json").write_text(json.dumps(spec))
    jupyter = {
        "JUPYTER_PATH": str(home),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"} | jupyter
    if str(python) == sys.executable:
        environ["PYTHONPATH"] = str(archives.ROOT)
    else:
        environ |= _of_another_python(tmp_path_factory)

    def execute(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
        work, scratch = (tmp_path_factory.mktemp(name) for name in ("work", "tmp"))
        with pytest.MonkeyPatch.context() as patch:
            for name, value in jupyter.items():
                patch.setenv(name, value)
            resources = {"metadata": {"path": str(work)}}
            client = nbclient.NotebookClient(notebook, timeout=300, startup_timeout=60, resources=resources)
            client.execute(env=environ | {"TMPDIR": str(scratch)})  # raises what a cell raised
        assert list(work.iterdir()) == []
        assert list(scratch.iterdir()) == []
        return notebook

    return execute


def _of_another_python(factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a kernel finds that has to install the package: its wheel, and the locked versions."""
    dist = factory.mktemp("dist")
    archives.build("wheel", archives.checkout(factory.mktemp("checkout")), dist)
    locked = (archives.ROOT / "requirements" / "newest.txt").read_text(encoding="utf-8")
    constraints = factory.mktemp("constraints") / "newest.txt"
    lines = [line for line in re.findall(r"^[\w.-]+==[^\\\n]+", locked, re.MULTILINE) if not line.startswith(_COLABS)]
    constraints.write_text("".join(f"{line}\n" for line in lines))
    find = f"{os.environ.get('PIP_FIND_LINKS', '')} {dist}"
    return {"PIP_FIND_LINKS": find, "PIP_CONSTRAINT": str(constraints)}

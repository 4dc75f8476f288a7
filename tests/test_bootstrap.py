"""scripts/bootstrap without a network: which Python and which uv it takes, what it installs, says and returns.

Every Python and every uv is a stand-in on a PATH of its own; they note how they were called.
"""

import base64
import hashlib
import http.server
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
INPUTS = ("requirements", "scripts", "setup.cfg", "pyproject.toml", "acme_ext/utils/libpython.py")
TOOLS = (
    "awk bash cat chmod cp cut dirname env flock grep head ln mkdir mktemp mv paste rm sed sha256sum sleep sort uname"
)

# VERSION, LIBRARY (a path or nothing) and MODULES (pip, venv or nothing) are written in.
PYTHON = r"""#!/bin/bash
modules=@MODULES@
echo "$0 $*" >>"$LOG"
case "$*" in
  *sys.version_info\[:2\]*) echo @VERSION@ ;;
  *"< (3, 8)"*) true ;;
  acme_ext/utils/libpython.py) echo @LIBRARY@; [[ -n "@LIBRARY@" ]] ;;
  "-m pip --version") [[ $modules == pip ]] ;;
  *install*--target*)
    while [[ $1 != --target ]]; do shift; done
    mkdir -p "$2/bin" && cp "$STANDINS/uv" "$2/bin/uv" ;;
  "-m venv "*)
    [[ $modules == venv ]] || exit 1
    mkdir -p "$3/bin" && sed 's/^modules=.*/modules=pip/' "$0" >"$3/bin/python" && chmod +x "$3/bin/python" ;;
  *get_path*) echo .venv/site ;;
  "-c import reverb"* | "-c import jax"*) [[ -z ${IMPORT_FAILS:-} ]] ;;
  scripts/index.py*) exec "$REAL_PYTHON" "$@" ;;
  *) echo "unexpected: $*" >&2; exit 99 ;;
esac
"""
UV = """#!/bin/bash
echo "$0 $*" >>"$LOG"
case "$*" in
  --version) echo "uv ${UV_VERSION:-0.0.1}" ;;
  "python install "*)
    [[ -z ${FETCH_FAILS:-} ]] && mkdir -p "$HOME/fetched" && cp "$STANDINS/python$3" "$HOME/fetched/python" ;;
  "python find "*) echo "$HOME/fetched/python" ;;
  "venv "*)
    version=$("$4" -c "sys.version_info[:2]")
    mkdir -p "$5/bin" "$5/site/reverb" "$5/site/courier" && cp "$STANDINS/python$version" "$5/bin/python" ;;
  "pip install "*)
    echo "index ${UV_DEFAULT_INDEX:-none}" >>"$LOG"
    sleep "${SLOW:-0}"
    [[ -z ${INSTALL_FAILS:-} ]] && cp "$STANDINS/uv" "${VENV:-.venv}/bin/uv" ;;
  *) echo "unexpected: $*" >&2; exit 99 ;;
esac
"""


class Machine:
    """A copy of what bootstrap reads, and a PATH with the stand-ins that a test puts there."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.project, self.home, self.log = folder / "project", folder / "home", folder / "log"
        self.path, self.standins, tools = folder / "path", folder / "standins", folder / "tools"
        for made in (self.project, self.home, self.path, self.standins, tools):
            made.mkdir()
        for name in INPUTS:
            target = self.project / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, target)
        for name in TOOLS.split():
            (tools / name).symlink_to(shutil.which(name) or pytest.fail(f"no {name} here"))
        self.log.touch()
        self.library = folder / "libpython3.10.so.1.0"
        self.library.touch()
        self.variables = {
            "PATH": f"{self.path}:{tools}",
            "HOME": str(self.home),
            "XDG_CONFIG_DIRS": str(folder / "etc"),
            "LOG": str(self.log),
            "STANDINS": str(self.standins),
            "REAL_PYTHON": sys.executable,
        }
        self._write(self.standins / "uv", UV)
        for version in ("3.10", "3.11", "3.12", "3.13"):  # what a fetched one and one in .venv are
            self.python(self.standins / f"python{version}", version)

    @staticmethod
    def _write(path: pathlib.Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def python(self, path: pathlib.Path | str, version: str, *, library: bool = True, modules: str = "") -> None:
        text = PYTHON.replace("@VERSION@", version).replace("@LIBRARY@", str(self.library) if library else "")
        self._write(self.path / path, text.replace("@MODULES@", modules))

    def program(self, name: str, text: str) -> None:
        self._write(self.path / name, f"#!/bin/bash\n{text}\n")

    def uv(self) -> None:
        shutil.copy(self.standins / "uv", self.path)

    def start(self, *extras: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", "scripts/bootstrap", *extras],
            cwd=self.project,
            env=self.variables | variables,
            stderr=subprocess.PIPE,
            text=True,
        )

    def bootstrap(self, *extras: str, code: int = 0, **variables: str) -> str:
        """Runs it, expects the exit code, and returns what it said."""
        self.log.write_text("")
        process = self.start(*extras, **variables)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == code, said
        assert "unexpected" not in said
        return said

    def calls(self, part: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if part in line]

    def installed(self) -> list[str]:
        return (self.project / ".venv/made-from").read_text().splitlines()[1:]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_the_first_python_310_is_taken_and_a_second_call_does_nothing(machine):
    machine.python("python3.10", "3.10", modules="pip")
    said = machine.bootstrap()
    assert f"making .venv with {machine.path}/python3.10" in said
    assert not machine.calls("python install")
    (core,) = machine.calls("core.txt")
    assert "--require-hashes" in core
    assert "--no-deps" in core
    assert machine.calls("--editable .")
    assert not machine.calls("dev.txt")
    assert machine.bootstrap() == ""
    assert not machine.calls("uv ")


@pytest.mark.parametrize("folder", [".pyenv/versions/3.10.9/bin", ".local/share/uv/python/cpython-3.10.9-linux/bin"])
def test_a_shim_that_fails_is_passed_over_for_the_python_behind_it(machine, folder):
    machine.program("python3.10", "echo 'pyenv: python3.10: command not found' >&2; exit 127")
    machine.python("python3", "3.12", modules="pip")
    behind = machine.home / folder / "python3.10"
    machine.python(behind, "3.10")
    assert f"making .venv with {behind}" in machine.bootstrap()
    assert not machine.calls("python install")


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_another_python_is_taken_where_there_is_no_310(machine, version):
    machine.python("python3", version, modules="pip")
    said = machine.bootstrap()
    assert f"making .venv with {machine.path}/python3: Python {version} has no Reverb and no Launchpad" in said
    assert not machine.calls("python install")
    assert not machine.calls("core.txt")
    (core,) = machine.calls("--editable .")
    assert "--constraint requirements/newest.txt" in core
    assert not machine.calls("-c import reverb")
    assert machine.bootstrap() == ""
    machine.bootstrap("dev")
    (call,) = machine.calls("[dev]")
    assert "--constraint requirements/newest.txt" in call


def test_310_comes_first_where_it_has_reverb_and_the_newest_with_all_extras_elsewhere(machine):
    machine.python("python3.10", "3.10", modules="pip")
    machine.python("python3.12", "3.12", modules="pip")
    machine.python("python3.13", "3.13", modules="pip")
    assert f"making .venv with {machine.path}/python3.10\n" in machine.bootstrap()
    for system in ("Linux aarch64", "Darwin arm64"):
        shutil.rmtree(machine.project / ".venv")
        machine.program("uname", f"echo {system}")
        assert f"making .venv with {machine.path}/python3.12: " in machine.bootstrap()


def test_a_version_and_a_folder_can_be_asked_for(machine):
    machine.python("python3.10", "3.10", modules="pip")
    machine.python("python3.13", "3.13", modules="pip")
    machine.bootstrap()
    said = machine.bootstrap("dev", VENV=".other", PYTHON="3.13")
    assert f"making .other with {machine.path}/python3.13" in said
    assert (machine.project / ".other/made-from").read_text().splitlines()[1:] == ["dev"]
    assert machine.installed() == []
    assert machine.bootstrap() == machine.bootstrap("dev", VENV=".other", PYTHON="3.13") == ""
    assert f"making .venv with {machine.path}/python3.13" in machine.bootstrap(PYTHON="3.13")
    assert machine.bootstrap() == ""
    assert "Python 3.9 is not one of 3.10, 3.12, 3.13, 3.11, 3.14" in machine.bootstrap(code=1, PYTHON="3.9")


def test_without_any_supported_python_uv_fetches_one_and_says_why(machine):
    machine.python("python3", "3.9", modules="pip")
    said = machine.bootstrap()
    assert "no Python of 3.10, 3.12, 3.13, 3.11 is here: uv fetches Python 3.10" in said
    assert "UV_PYTHON_DOWNLOADS=never forbids it" in said
    assert machine.calls("uv python install 3.10")
    assert f"making .venv with {machine.home}/fetched/python" in said
    (pip,) = machine.calls("python3 -m pip install")
    assert "--require-hashes" in pip  # the uv that fetches is the locked one


def test_elsewhere_uv_fetches_312(machine):
    machine.program("uname", "echo Darwin arm64")
    machine.python("python3", "3.10", modules="pip")
    assert "uv fetches Python 3.12" in machine.bootstrap()
    assert machine.calls("uv python install 3.12")


@pytest.mark.parametrize("value", ["never", "manual"])
def test_a_variable_forbids_to_fetch_a_python(machine, value):
    machine.python("python3", "3.9", modules="pip")
    said = machine.bootstrap(code=1, UV_PYTHON_DOWNLOADS=value)
    assert f"is here, and UV_PYTHON_DOWNLOADS={value} forbids to fetch one" in said
    assert not machine.calls("pip install")
    assert not machine.calls("uv ")


def test_a_python_that_cannot_be_fetched_is_said(machine):
    machine.python("python3", "3.9", modules="pip")
    assert "uv could not fetch a Python 3.10" in machine.bootstrap(code=1, FETCH_FAILS="1")
    assert not (machine.project / ".venv").exists()


def test_a_python_310_without_its_library_is_passed_over_and_named(machine):
    machine.python("python3.10", "3.10", library=False, modules="pip")
    said = machine.bootstrap()
    assert f"{machine.path}/python3.10 has no libpython3.10.so.1.0" in said
    assert machine.calls("uv python install 3.10")
    shutil.rmtree(machine.project / ".venv")
    machine.python("python3.11", "3.11", modules="pip")
    assert f"making .venv with {machine.path}/python3.11" in machine.bootstrap()


def test_a_python_that_is_named_is_taken_or_refused(machine):
    machine.python("python3.10", "3.10", modules="pip")
    other = machine.home / "own/python"
    machine.python(other, "3.10", modules="pip")
    assert f"making .venv with {other}" in machine.bootstrap(PYTHON=str(other))
    machine.python(other, "3.9")
    shutil.rmtree(machine.project / ".venv")
    assert f"PYTHON={other} does not run as a Python of 3.10, " in machine.bootstrap(code=1, PYTHON=str(other))
    machine.python(other, "3.10", library=False)
    assert f"PYTHON={other} has no libpython3.10.so.1.0" in machine.bootstrap(code=1, PYTHON=str(other))
    assert not (machine.project / ".venv").exists()


def test_it_needs_nothing_that_macos_lacks(machine):
    machine.program("uname", "echo Darwin arm64")
    machine.python("python3", "3.12", modules="pip")
    for name in ("flock", "sha256sum"):
        (machine.path.parent / "tools" / name).unlink()
    for name in ("perl", "shasum"):
        (machine.path.parent / "tools" / name).symlink_to(shutil.which(name) or pytest.skip(f"no {name} here"))
    both = [machine.start(SLOW="0.2"), machine.start(SLOW="0.2")]
    assert sorted("making" in process.communicate(timeout=60)[1] for process in both) == [False, True]
    assert machine.bootstrap() == ""
    # mapfile and local -n are of later bashes; sed -u, ln -t and readlink -f are GNU's.
    text = (ROOT / "scripts/bootstrap").read_text()
    assert not re.search(r"\b(mapfile|readarray|sed -u|ln -sf? -t|readlink -f|local -n|declare -A)\b|\$\{\w+,,", text)


def locked_version() -> str:
    (line,) = [line for line in (ROOT / "requirements/dev.txt").read_text().splitlines() if line.startswith("uv==")]
    return line.removeprefix("uv==").split()[0]


def test_the_users_uv_is_taken_where_it_is_the_locked_one(machine):
    machine.python("python3.10", "3.10", modules="pip")
    machine.uv()
    machine.bootstrap(UV_VERSION=locked_version())
    assert not machine.calls("pip install --quiet --disable-pip-version-check")


def test_without_pip_the_one_that_comes_with_python_gets_uv(machine):
    machine.python("python3.10", "3.10", modules="venv")
    machine.python("python3", "3.11")
    machine.bootstrap()
    assert machine.calls("pip/bin/python -m pip install")


def test_without_any_pip_the_systems_package_of_it_is_unpacked(machine):
    machine.python("python3", "3.11")
    machine.program("apt-get", 'echo "apt-get $*" >>"$LOG"; echo >python3-pip-whl_1_all.deb')
    machine.program(
        "dpkg-deb", 'mkdir -p "$3/usr/share/python-wheels"; echo >"$3/usr/share/python-wheels/pip-1-py3.whl"'
    )
    machine.bootstrap()
    assert machine.calls("apt-get download -q python3-pip-whl")
    (call,) = machine.calls("--target")
    assert "/usr/share/python-wheels/pip-1-py3.whl/pip install" in call


def test_where_no_python_can_get_uv_the_users_does(machine):
    machine.python("python3", "3.11")
    machine.uv()
    said = machine.bootstrap()
    assert "no pip configuration names a package index" in said
    assert machine.calls(f"{machine.path}/uv venv")


def test_where_there_is_nothing_it_says_what_would_help(machine):
    said = machine.bootstrap(code=1)
    assert "no way to get uv" in said
    assert "python3-venv" in said


def test_extras_are_added_and_nothing_is_undone(machine):
    machine.python("python3.10", "3.10", modules="pip")
    machine.bootstrap()
    machine.bootstrap("atari")
    (call,) = machine.calls("[atari]")
    assert "--constraint requirements/dev.txt" in call  # uv verifies the hashes of constraints
    machine.bootstrap("dev")
    (call,) = machine.calls("dev.txt")
    assert "--require-hashes" in call
    assert not machine.calls("uv venv")
    assert not machine.calls("core.txt")
    assert machine.installed() == ["atari", "dev"]
    for extras in ((), ("atari",), ("ray",), ("dev",)):  # the development set holds all extras but one
        assert machine.bootstrap(*extras) == ""
    machine.bootstrap("cuda")
    assert machine.calls("[cuda]")


def test_an_unknown_extra_is_refused(machine):
    said = machine.bootstrap("atary", code=1)
    assert "there is no extra 'atary'; there are atari dmc " in said


def test_an_interrupted_install_is_started_again(machine):
    machine.python("python3.10", "3.10", modules="pip")
    assert "the next call starts it again" in machine.bootstrap(code=1, INSTALL_FAILS="1")
    assert not (machine.project / ".venv/made-from").exists()
    assert "making .venv" in machine.bootstrap()
    assert machine.bootstrap() == ""


def test_an_interrupted_addition_leaves_what_was_there(machine):
    machine.python("python3.10", "3.10", modules="pip")
    machine.bootstrap()
    machine.bootstrap("dev", code=1, INSTALL_FAILS="1")
    assert machine.installed() == []
    assert machine.bootstrap() == ""
    machine.bootstrap("dev")
    assert machine.installed() == ["dev"]


def test_a_stack_that_does_not_load_is_no_success(machine):
    machine.python("python3.10", "3.10", modules="pip")
    assert "the packages were installed and do not load" in machine.bootstrap(code=1, IMPORT_FAILS="1")
    assert "making .venv" in machine.bootstrap()


@pytest.mark.parametrize("changed", ["requirements/core.txt", "setup.cfg", "scripts/bootstrap"])
def test_a_change_of_what_it_is_made_from_makes_it_anew_with_all_that_it_had(machine, changed):
    machine.python("python3.10", "3.10", modules="pip")
    machine.bootstrap("dev")
    with open(machine.project / changed, "a") as file:
        file.write("\n# changed\n")
    assert "making .venv" in machine.bootstrap()
    assert machine.calls("dev.txt")
    assert machine.installed() == ["dev"]


def test_byte_code_beside_the_scripts_changes_nothing(machine):
    machine.python("python3.10", "3.10", modules="pip")
    machine.bootstrap()
    (machine.project / "scripts" / "__pycache__").mkdir(exist_ok=True)
    (machine.project / "scripts" / "__pycache__" / "docs_hooks.cpython-310.pyc").touch()
    assert machine.bootstrap() == ""


def test_a_folder_that_was_moved_is_made_anew(machine):
    machine.python("python3.10", "3.10", modules="pip")
    machine.bootstrap()
    machine.project = machine.project.rename(machine.project.with_name("moved"))
    assert "making .venv" in machine.bootstrap()


def test_of_two_at_once_one_installs(machine):
    machine.python("python3.10", "3.10", modules="pip")
    both = [machine.start(SLOW="0.2"), machine.start(SLOW="0.2")]
    assert sorted("making" in process.communicate(timeout=60)[1] for process in both) == [False, True]
    assert len(machine.calls("uv venv")) == 1


def test_another_kind_of_machine_is_refused(machine):
    machine.program("uname", "echo MINGW64_NT x86_64")
    said = machine.bootstrap(code=1)
    assert "this is MINGW64_NT x86_64" in said
    assert "wsl --install" in said


def test_a_library_beside_the_interpreter_is_linked_to_where_the_loader_looks(machine):
    machine.python("python3.10", "3.10", modules="pip")
    machine.bootstrap()
    for package in ("reverb", "courier"):
        assert (machine.project / ".venv/site" / package / "libpython3.10.so.1.0").readlink() == machine.library


def test_the_index_of_pips_configuration_is_uvs_too(machine):
    machine.python("python3.10", "3.10", modules="pip")
    machine.bootstrap()
    assert set(machine.calls("index ")) == {"index none"}
    config = machine.home / ".config/pip/pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text("[global]\nindex-url = http://127.0.0.1:9/simple\n")
    machine.bootstrap("atari")
    assert set(machine.calls("index ")) == {"index http://127.0.0.1:9/simple"}
    machine.bootstrap("ray", PIP_INDEX_URL="http://127.0.0.1:9/variable")
    assert set(machine.calls("index ")) == {"index http://127.0.0.1:9/variable"}
    machine.bootstrap("dmc", UV_DEFAULT_INDEX="http://127.0.0.1:9/own")
    assert set(machine.calls("index ")) == {"index http://127.0.0.1:9/own"}
    (machine.home / ".config/uv").mkdir()
    (machine.home / ".config/uv/uv.toml").touch()
    machine.bootstrap("bsuite")
    assert set(machine.calls("index ")) == {"index none"}


class Index(http.server.SimpleHTTPRequestHandler):
    """A package index that wants a name and a password."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") == "Basic " + base64.b64encode(b"me:p@ss").decode():
            super().do_GET()
        else:
            self.send_error(401)

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def index(tmp_path):
    """The URL of an index with a uv 1.2.3 for three platforms, and the hash of the one for this."""
    folder = tmp_path / "served/simple/uv"
    folder.mkdir(parents=True)
    names = [f"uv-1.2.3-py3-none-{tag}.whl" for tag in ("macosx_11_0_arm64", "musllinux_1_1_x86_64")]
    names.append("uv-1.2.3-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
    for name in names:
        with zipfile.ZipFile(folder / name, "w") as wheel:
            wheel.writestr("uv-1.2.3.data/scripts/uv", f"#!/bin/sh\necho {name}\n")
            wheel.writestr("uv/__init__.py", "")
    (folder / "index.html").write_text("".join(f'<a href="../uv/{name}#sha256=0">{name}</a>\n' for name in names))

    def handler(*args):
        return Index(*args, directory=str(tmp_path / "served"))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        digest = hashlib.sha256((folder / names[-1]).read_bytes()).hexdigest()
        yield f"http://me:p%40ss@127.0.0.1:{server.server_port}/simple", digest
        server.shutdown()


def fetch(tmp_path, url, digest):
    lock = tmp_path / "uv.txt"
    lock.write_text(f"uv==1.2.3 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{digest}\n")
    return subprocess.run(
        [sys.executable, ROOT / "scripts/index.py", "fetch", lock, tmp_path / "got"],
        env={"PIP_INDEX_URL": url, "PIP_CONFIG_FILE": os.devnull, "no_proxy": "*"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_python_alone_fetches_the_wheel_for_this_machine(tmp_path, index):
    done = fetch(tmp_path, *index)
    assert done.returncode == 0, done.stderr
    told = subprocess.run([tmp_path / "got/bin/uv"], capture_output=True, text=True, check=True)
    assert "manylinux" in told.stdout


def test_a_wheel_with_another_hash_is_refused(tmp_path, index):
    done = fetch(tmp_path, index[0], "1" * 64)
    assert done.returncode == 1
    assert "the wheel of uv 1.2.3 from the package index is not the locked one" in done.stderr
    assert not (tmp_path / "got").exists()


def test_an_index_that_cannot_be_asked_is_said_without_its_password(tmp_path, index):
    done = fetch(tmp_path, index[0].replace("me:p%40ss", "me:wrong"), index[1])
    assert done.returncode == 1
    assert "uv could not be fetched" in done.stderr
    assert "wrong" not in done.stderr

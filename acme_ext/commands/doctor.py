"""The command `acme-ext doctor`: checks this machine and this installation, and tells how to fix problems.

It imports only the standard library, so it works even if other packages are missing or broken. Imports that it checks
run in separate processes.
"""

import dataclasses
import glob
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent import futures
from typing import TYPE_CHECKING, Any, Literal

from acme_ext.commands.common import counted
from acme_ext.utils import install, libpython, system

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = "acme-ext"
IMPORT_SECONDS = 120.0
"""Time limit for one import; Reverb's takes 10 s on a slow disk."""

PYTHONS = ((3, 10), (3, 14))
"""The first and the last Python that the package is for."""
MACHINES = {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")}
"""Systems and processors that JAX has wheels for."""

GIB = 2**30
MIB = 2**20

VersionOf = Callable[[str], str | None]
"""A function that returns the installed version of a distribution, or None, such as `installed_version`."""

_WHY = {
    "tensorflow-cpu": "Courier and Reverb are compiled against TensorFlow 2.8",
    "dm-reverb": "0.7.3 is the Reverb that is compiled against TensorFlow 2.8",
    "dm-launchpad": "0.5.0 is the Launchpad that dm-acme 0.4.0 is built on",
    "numpy": "TensorFlow 2.8 and Reverb are compiled against NumPy 1",
    "protobuf": "the generated code of TensorFlow 2.8 fails with later runtimes",
    "setuptools": "TensorBoard 2.8 imports pkg_resources, which setuptools dropped in 82",
}

# Distributions that install into the same folder. If two of a row are installed, they overwrite each other's files.
_RIVALS = {
    "tensorflow-cpu": ("tensorflow", "tensorflow-gpu", "tf-nightly"),
    "dm-reverb": ("dm-reverb-nightly",),
    "dm-launchpad": ("dm-launchpad-nightly",),
}

# Distributions that must come from the same build.
_ABI = ("tensorflow-cpu", "dm-reverb", "dm-launchpad")

_ANEW = f"install it anew with the tested versions: {install.command()}"

_LISTED = 5  # number of differing versions that are listed

# Extras that are not reported: development tools, and extras that combine others.
_UNREPORTED_EXTRAS = {"all", "test", "dev"}

_PARTS = ("launchpad", "ray", "reverb")


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check.

    `what` and `mend` are one line each; `mend` tells how to fix a problem, and is empty if there is none. A `problem`
    prevents the toolkit or a part of it from working; a `warning` may do so.
    """

    level: Literal["ok", "warning", "problem"]
    what: str
    mend: str = ""


@dataclasses.dataclass(frozen=True)
class Probe:
    """The result of a line of Python in a separate process; `code` is None if it was stopped at the time limit."""

    code: int | None
    output: str
    error: str


def add(commands: Any) -> None:
    """Adds the command."""
    doctor = commands.add_parser("doctor", help="check this installation, and tell how to fix problems")
    doctor.set_defaults(command=lambda options: run_doctor(print))


def diagnose() -> list[Finding]:
    """Runs all checks; takes about as long as importing Reverb."""
    unread: list[Finding] = []
    try:
        requirements = own_requirements()
    except ImportError as error:
        requirements = []
        unread = [Finding("problem", f"no version could be checked: {error}", _ANEW)]
    for_reverb = install.has_reverb_wheels()
    modules = ("reverb", "courier", "acme") if for_reverb else ()
    with futures.ThreadPoolExecutor(2) as pool:  # each thread only waits for a process
        imports = pool.map(run_line, [f"import acme_ext, {module}" for module in modules])
        jax = pool.submit(run_line, _JAX_LINE)
        findings = [
            check_platform(sys.version_info[:3], platform.system(), platform.machine()),
            *check_engines([module for module in _PARTS if importlib.util.find_spec(module)]),
            *unread,
            *check_versions(requirements, installed_version),
        ]
        if for_reverb:
            findings += check_rivals(installed_version)
            findings += check_tested(install.CONSTRAINTS, installed_version)
        findings += check_extras(requirements, installed_version)
        if for_reverb:
            findings.append(check_libpython(run_line(_LIBPYTHON_LINE), run_line("import courier")))
        findings += [check_import(module, probe, requirements) for module, probe in zip(modules, imports, strict=True)]
        findings.append(check_jax(jax.result(), nvidia=bool(glob.glob("/dev/nvidia[0-9]*"))))
        if for_reverb:
            findings.append(check_proxies(os.environ))
        return [*findings, *check_folders(), check_cores(system.available_cores())]


def run_doctor(write: Callable[[str], object] = print) -> int:
    """Writes all findings, line by line, and returns the exit code: 1 if there is a problem, else 0."""
    findings = diagnose()
    for finding in findings:
        write(f"{finding.level:<8} {finding.what}")
        if finding.mend:
            write(f"{'':<8}   -> {finding.mend}")
    problems, warnings = (sum(f.level == level for f in findings) for level in ("problem", "warning"))
    write(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}")
    return 1 if problems else 0


def check_platform(version: tuple[int, ...], system: str, machine: str) -> Finding:
    """Checks whether this Python and this machine are supported."""
    what = f"Python {'.'.join(map(str, version))} on {system}, {machine}"
    if not PYTHONS[0] <= tuple(version[:2]) <= PYTHONS[1]:
        first, last = (".".join(map(str, each)) for each in PYTHONS)
        return Finding(
            "problem",
            f"{what}: the package is for Python {first} to {last}",
            "make the environment with another Python, for example `uv venv --python 3.12`",
        )
    if (system, machine) not in MACHINES:
        return Finding(
            "warning",
            f"{what}: not tried; JAX has wheels for Linux on x86-64 and ARM, and for macOS on Apple's chips",
            "where JAX does not install, run in a container or on another machine",
        )
    return Finding("ok", what)


def check_engines(installed: Container[str]) -> Iterator[Finding]:
    """Tells which tables and ways of running there are; a missing one is no problem.

    Args:
      installed: those of the modules `reverb`, `launchpad` and `ray` that are installed.
    """
    has_reverb = "reverb" in installed
    mend = "for Reverb, make the environment with CPython 3.10 on x86-64 Linux: `uv venv --python 3.10`"
    tables = "reverb, embedded" if has_reverb else "embedded"
    yield Finding("ok", f"tables for the replay: {tables}", "" if has_reverb else mend)
    ways = ["in one process", "compiled", "on recorded data"]
    ways.append(f"as a program ({'with' if 'launchpad' in installed else 'without'} Launchpad)")
    if "ray" in installed:
        ways.append("on Ray")
    yield Finding("ok", f"ways of running: {', '.join(ways)}")


def installed_version(distribution: str) -> str | None:
    """Returns the installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def own_requirements() -> list["Requirement"]:
    """Returns the requirements from setup.cfg, including those of extras, from the installed metadata.

    Raises:
        ImportError: acme_ext or packaging is not installed.
    """
    from packaging.requirements import Requirement

    return [Requirement(line) for line in importlib.metadata.requires(DISTRIBUTION) or []]


def check_versions(requirements: Iterable["Requirement"], version_of: VersionOf) -> Iterator[Finding]:
    """Checks each required distribution's version."""
    for requirement in requirements:
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        name, wanted, version = requirement.name, requirement.specifier, version_of(requirement.name)
        if version and wanted.contains(version, prereleases=True):
            yield Finding("ok", f"{name} {version}")
            continue
        state = f"{version} is installed" if version else "is not installed"
        why = f": {_WHY[name]}" if name in _WHY else ""
        yield Finding("problem", f"{name} {state}, {wanted} is needed{why}", f"pip install '{name}{wanted}'")


def check_rivals(version_of: VersionOf) -> Iterator[Finding]:
    """Checks for distributions that overwrite each other's files."""
    for ours, others in _RIVALS.items():
        for other in others:
            if version_of(other) is not None:
                yield Finding(
                    "problem",
                    f"{other} {version_of(other)} is installed; it overwrites files of {ours}",
                    f"pip uninstall -y {other} {ours}, then install {ours} again",
                )


def check_tested(constraints: pathlib.Path, version_of: VersionOf) -> Iterator[Finding]:
    """Compares the installed versions with those that the tests use, from a file of this package."""
    tested = dict(re.findall(r"^([\w.-]+)==(\S+)", constraints.read_text(encoding="utf-8"), re.MULTILINE))
    installed = {name: version for name in tested if (version := version_of(name)) is not None}
    others = [f"{name} {version} ({tested[name]})" for name, version in installed.items() if version != tested[name]]
    if others:
        listed = ", ".join(others[:_LISTED]) + (" and others" if len(others) > _LISTED else "")
        count = (
            "1 version is not the tested one" if len(others) == 1 else f"{len(others)} versions are not the tested ones"
        )
        yield Finding("warning", f"{count}: {listed}", install.command())
    else:
        yield Finding("ok", f"the tested versions, of {constraints}")


def check_extras(requirements: Iterable["Requirement"], version_of: VersionOf) -> Iterator[Finding]:
    """Checks the optional extras; a missing extra is not a problem."""
    extras: dict[str, list[Requirement]] = {}
    for requirement in requirements:
        for extra in re.findall(r"""extra == ["']([\w-]+)""", str(requirement.marker)):
            if requirement.marker and requirement.marker.evaluate({"extra": extra}):  # for this Python
                extras.setdefault(extra, []).append(requirement)
    for extra in sorted(extras.keys() - _UNREPORTED_EXTRAS):
        parts = [(r, version_of(r.name)) for r in extras[extra]]
        missing = [r.name for r, version in parts if version is None]
        wrong = [f"{r.name} {v} ({r.specifier} is needed)" for r, v in parts if v and not r.specifier.contains(v, True)]
        mend = install.command(extra)
        if missing:
            yield Finding("ok", f"optional {extra}: not installed ({', '.join(missing)})", mend)
        elif wrong:
            yield Finding("warning", f"optional {extra}: {', '.join(wrong)}", mend)
        else:
            yield Finding("ok", f"optional {extra}: " + ", ".join(f"{r.name} {version}" for r, version in parts))


def run_line(line: str) -> Probe:
    """Runs a line of Python in a separate process, for at most `IMPORT_SECONDS`."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", line],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=IMPORT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Probe(None, "", "")
    return Probe(done.returncode, done.stdout.strip(), done.stderr.strip())


_LIBPYTHON_LINE = f"import runpy; runpy.run_path({libpython.__file__!r}, run_name='__main__')"


def check_libpython(found: Probe, bare: Probe) -> Finding:
    """Checks whether libpython, which Reverb and Courier are linked against, can be found.

    Args:
      found: a process that printed the library's path, or failed.
      bare: an import of Courier without other imports before it.
    """
    if found.code != 0:
        mend = (
            "install it (on Debian and Ubuntu the package libpython3.10), or make the environment with a Python that"
            " has it: `uv venv --managed-python --python 3.10`"
        )
        return Finding("problem", f"{libpython.NAME}, which Reverb and Courier are linked against, isn't found", mend)
    if bare.code and libpython.NAME in bare.error:
        folders = " ".join(os.path.join(sysconfig.get_path("platlib"), name) for name in ("reverb", "courier"))
        return Finding(
            "warning",
            f"this Python has {libpython.NAME} inside, so Reverb and Courier load only after `import acme_ext`",
            f"import acme_ext first, or: for d in {folders}; do ln -s {found.output} $d; done",
        )
    return Finding("ok", f"{libpython.NAME} is found")


def check_import(module: str, probe: Probe, requirements: Iterable["Requirement"]) -> Finding:
    """Checks whether a compiled module can be imported; even permitted versions may have incompatible symbols."""
    if probe.code == 0:
        return Finding("ok", f"import {module}")
    if "undefined symbol" in probe.error:
        abi = [f"'{r.name}{r.specifier}'" for r in requirements if r.name in _ABI]
        return Finding(
            "problem",
            f"import {module} fails on an undefined symbol: TensorFlow, Reverb and Courier are not of one build",
            f"pip install --force-reinstall --no-deps {' '.join(abi)}" if abi else _ANEW,
        )
    return Finding("problem", f"import {module} fails: {_reason(probe)}", f"mend what is named above, or {_ANEW}")


def _reason(probe: Probe) -> str:
    """Returns why a probe failed: the exception's line, if there is one."""
    if probe.code is None:
        return f"it had not ended after {IMPORT_SECONDS:.0f} s"
    if probe.code < 0:
        return f"it died of signal {-probe.code}" + (", lacking AVX" if -probe.code == signal.SIGILL else "")
    lines = probe.error.splitlines() or ["no message"]
    return next((line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)), lines[-1])


_JAX_LINE = (
    "import jax; d = jax.devices(); "
    "print(f'JAX {jax.__version__} on {jax.default_backend()}: {len(d)} x {d[0].device_kind}')"
)


def check_jax(probe: Probe, *, nvidia: bool) -> Finding:
    """Checks the devices that JAX sees, and whether an NVIDIA GPU is unused."""
    if probe.code != 0:
        platforms = os.environ.get("JAX_PLATFORMS")
        mend = f"unset JAX_PLATFORMS, which is {platforms!r}" if platforms else f"mend what is named above, or {_ANEW}"
        return Finding("problem", f"JAX gives no device: {_reason(probe)}", mend)
    seen = probe.output.splitlines()[-1]
    if nvidia and " on cpu:" in seen:
        return Finding("warning", f"{seen}; the NVIDIA card here is not used", install.command("cuda"))
    return Finding("ok", seen)


def check_proxies(environ: Mapping[str, str]) -> Finding:
    """Checks the variables that make gRPC, inside Courier and Reverb, use a proxy; it reads lower-case names only.

    Programs disable the proxy for their own nodes, see `utils.proxies`.
    """
    set_here = [name for name in ("grpc_proxy", "https_proxy", "http_proxy") if environ.get(name)]
    if not set_here:
        return Finding("ok", "no proxy variable stands between the nodes")
    return Finding("ok", f"{set_here[0]} is set; calls between the nodes of a program on this machine pass it by")


def check_folders() -> Iterator[Finding]:
    """Checks the space for run directories and temporary files, and the shared memory for locks between processes."""
    for role, path in (("current folder", os.getcwd()), ("temporary folder", tempfile.gettempdir())):
        yield check_room(role, path, shutil.disk_usage(path).free, os.access(path, os.W_OK))
    if not system.is_linux():
        return
    shared = "/dev/shm"
    if os.path.isdir(shared) and os.access(shared, os.W_OK):
        yield Finding("ok", f"{shared}: {shutil.disk_usage(shared).free / GIB:.1f} GiB free")
    else:
        mend = "mount a tmpfs there, which may be written"
        yield Finding("warning", f"{shared} can't be written, so locks between processes fail", mend)


def check_room(role: str, path: str, free: int, writable: bool) -> Finding:
    """Checks a folder's free space, and that it is writable."""
    what = f"{role} {path}: {free / GIB:.1f} GiB free"
    mend = (
        "make room, or choose another folder by --run-dir" if role == "current folder" else "make room, or set TMPDIR"
    )
    if not writable:
        return Finding("warning", f"{role} {path} can't be written", mend)
    if free < 100 * MIB:
        return Finding("problem", what, mend)
    if free < GIB:
        return Finding("warning", f"{what}, a replay checkpoint may not fit", mend)
    return Finding("ok", what)


def check_cores(cores: int) -> Finding:
    """Checks how many cores this process may use."""
    if cores < 2:
        return Finding("warning", "1 core: acting, learning and Reverb share it", "allow the process 2 cores or more")
    return Finding("ok", f"{cores} cores")

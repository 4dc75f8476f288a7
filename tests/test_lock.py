"""The lock holds a version of everything that setup.cfg asks for, and it is one that setup.cfg allows."""

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


def pinned() -> dict[str, Version]:
    """Returns the versions of the lock, by name."""
    text = (ROOT / "requirements/dev.txt").read_text()
    return {
        canonicalize_name(name): Version(version)
        for name, version in re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", text, re.MULTILINE)
    }


@pytest.mark.parametrize("extra", asked())
def test_every_requirement_is_in_the_lock_in_a_version_that_is_allowed(extra):
    extras, versions, checked = asked(), pinned(), 0
    for requirement in extras[extra]:
        if requirement.name == "acme-ext":
            assert requirement.extras <= extras.keys()
        elif requirement.marker is None or requirement.marker.evaluate(MARKERS):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), str(requirement)
        checked += 1
    assert checked


def test_every_entry_of_the_lock_is_one_version_and_has_a_hash():
    text = (ROOT / "requirements/dev.txt").read_text()
    entries = re.split(r"^(?=[\w-])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)[1:]
    assert len(entries) == len(pinned()) > 100
    for entry in entries:
        assert re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+ ", entry), entry
        assert "--hash=sha256:" in entry, entry

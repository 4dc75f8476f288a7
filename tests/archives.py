"""What tests of an installed package share: its archives, and another Python to install them in."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def checkout(folder: pathlib.Path) -> pathlib.Path:
    """A copy of what git has, so that the project's folder stays clean."""
    anywhere = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "results")

    def ignored(folder: str, names: list[str]) -> set[str]:
        made = {"runs"} if "acme_ext" not in pathlib.Path(folder).relative_to(ROOT).parts else set()
        return anywhere(folder, names) | made & set(names)

    return pathlib.Path(shutil.copytree(ROOT, folder / "copy", symlinks=True, ignore=ignored))


def build(kind: str, source: pathlib.Path, into: pathlib.Path) -> pathlib.Path:
    """The archive that setuptools builds, as pip has it build, from installed packages alone."""
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(into)], cwd=source, check=True, capture_output=True, text=True)
    (archive,) = into.iterdir()
    return archive


def newer_python() -> pathlib.Path | None:
    """A Python 3.12 of this machine, if there is one that runs."""
    versions = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    found = [shutil.which("python3.12"), *sorted(versions.glob("3.12*/bin/python3.12"))]
    for candidate in filter(None, found):
        if subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode == 0:
            return pathlib.Path(candidate)
    return None

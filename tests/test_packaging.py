"""The wheel is whole: it holds acme_ext, all of it, and nothing else."""

import configparser
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
BUILD_FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, unpacked; built from a copy, so that the project's folder stays clean, and with nothing fetched."""
    copy = tmp_path_factory.mktemp("copy")
    for name in BUILD_FILES:
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "acme_ext", copy / "acme_ext", ignore=shutil.ignore_patterns("__pycache__"))
    for link in ("agents", "builders", "launch"):
        (copy / link).symlink_to(f"acme_ext/{link}")
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    built = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, "-c", build, str(built)], cwd=copy, check=True, capture_output=True, text=True)
    (archive,) = built.glob("*.whl")
    unpacked = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(archive).extractall(unpacked)
    return unpacked


def test_the_links_at_the_root_lead_into_the_package():
    for link in ("agents", "builders", "launch"):
        assert (ROOT / link).is_symlink()
        assert (ROOT / link).resolve() == ROOT / "acme_ext" / link


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    (metadata,) = wheel.glob("*.dist-info")
    assert {path.name for path in wheel.iterdir()} == {"acme_ext", metadata.name}
    packed = {path.relative_to(wheel) for path in (wheel / "acme_ext").rglob("*") if path.is_file()}
    source = (path for path in (ROOT / "acme_ext").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert packed == {path.relative_to(ROOT) for path in source}
    assert pathlib.Path("acme_ext/py.typed") in packed


def test_every_module_of_the_wheel_imports_in_a_clean_folder(wheel, tmp_path):
    modules = [
        ".".join(path.relative_to(wheel).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((wheel / "acme_ext").rglob("*.py"))
    ]
    # The editable install's finder would lead to the source, so it goes; what was imported tells where from.
    code = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(wheel)!r})\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in getattr(f, '__module__', '')]\n"
        f"for name in {modules!r}:\n"
        "    module = importlib.import_module(name)\n"
        f"    assert module.__file__.startswith({str(wheel)!r}), module.__file__\n"
        "print('imported all')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported all"


def test_the_command_of_setup_cfg_is_the_wheels_and_resolves(wheel, tmp_path):
    entry_points = configparser.ConfigParser()
    (path,) = wheel.glob("*.dist-info/entry_points.txt")
    entry_points.read(path)
    assert dict(entry_points["console_scripts"]) == {"acme-ext": "acme_ext.launch.cli:main"}
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); from acme_ext.launch.cli import main; assert callable(main)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)

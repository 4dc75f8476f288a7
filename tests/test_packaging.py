"""The wheel and the source archive hold acme_ext and nothing else."""

import ast
import configparser
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Iterator

import archives
import pytest

import acme_ext

ROOT = pathlib.Path(__file__).parents[1]
LINKS = ("agents", "builders", "launch")


def wheel_of(source: pathlib.Path, factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel of a folder, unpacked."""
    unpacked = factory.mktemp("unpacked")
    zipfile.ZipFile(archives.build("wheel", source, factory.mktemp("wheel"))).extractall(unpacked)
    return unpacked


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return archives.checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def wheel(checkout, tmp_path_factory):
    return wheel_of(checkout, tmp_path_factory)


@pytest.fixture(scope="module")
def sdist(checkout, tmp_path_factory):
    """The source archive, unpacked."""
    unpacked = tmp_path_factory.mktemp("sdist")
    with tarfile.open(archives.build("sdist", checkout, tmp_path_factory.mktemp("archive"))) as archive:
        archive.extractall(unpacked)
    (folder,) = unpacked.iterdir()
    return folder


def files(folder: pathlib.Path) -> set[pathlib.Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_the_links_at_the_root_lead_into_the_package():
    for link in LINKS:
        assert (ROOT / link).is_symlink()
        assert (ROOT / link).resolve() == ROOT / "acme_ext" / link


def imported(source: str) -> Iterator[str]:
    """The first part of every module that a source imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield ast.unparse(node.args[0]).strip("'").partition(".")[0]


@pytest.mark.release
def test_nothing_imports_through_the_links_at_the_root():
    sources = {path: path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py") if ".venv" not in path.parts}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources[path] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            sources[page] = sources.get(page, "") + block
    assert ROOT / "acme_ext/commands/cli.py" in sources
    through = {str(path.relative_to(ROOT)) for path, source in sources.items() if set(LINKS) & set(imported(source))}
    assert not through
    assert set(imported("import agents.dqn\nfrom builders import DQN\nimportlib.import_module('launch.cli')")) == set(
        LINKS
    )


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    (metadata,) = wheel.glob("*.dist-info")
    assert {path.name for path in wheel.iterdir()} == {"acme_ext", metadata.name}
    assert files(wheel / "acme_ext") == files(ROOT / "acme_ext")
    assert {pathlib.Path("py.typed"), pathlib.Path("constraints.txt")} <= files(wheel / "acme_ext")


def test_the_source_archive_makes_the_same_wheel(sdist, wheel, tmp_path_factory):
    assert {"LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "setup.cfg"} <= {p.name for p in sdist.iterdir()}
    assert not {*LINKS, "tests", "benchmarks"} & {path.name for path in sdist.iterdir()}
    again = wheel_of(sdist, tmp_path_factory)
    assert files(again) == files(wheel)
    for path in files(wheel) - {path for path in files(wheel) if path.name == "RECORD"}:
        assert (again / path).read_bytes() == (wheel / path).read_bytes(), path


def test_the_page_on_a_package_index_needs_nothing_beside_it(wheel):
    (path,) = wheel.glob("*.dist-info/METADATA")
    metadata = importlib.metadata.PathDistribution(path.parent).metadata
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert text.startswith("# acme_ext")
    targets = re.findall(r"\]\(([^)]+)\)|(?:src|href)=\"([^\"]+)\"", text)
    assert all((a or b).startswith("https://") for a, b in targets)
    extras = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert extras == set(metadata.get_all("Provides-Extra")) - {"bench", "docs", "notebook", "test", "dev"}


def test_one_version_is_said_everywhere():
    assert f"\nversion: {acme_ext.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {acme_ext.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.release
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
    assert dict(entry_points["console_scripts"]) == {"acme-ext": "acme_ext.commands.cli:main"}
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); from acme_ext.commands.cli import main; assert callable(main)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


@pytest.fixture(scope="module")
def user(checkout, tmp_path_factory):
    """An environment of a user's: the wheel with what it depends on, in the tested versions, and nothing else."""
    folder = tmp_path_factory.mktemp("user")
    archive = archives.build("wheel", checkout, tmp_path_factory.mktemp("dist"))
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder / "venv")], check=True, cwd=folder)
    what = ["--python", str(folder / "venv"), "--constraint", str(ROOT / "acme_ext/constraints.txt"), str(archive)]
    # The cache has it all where the development environment was made on this machine.
    if subprocess.run([*uv, "--offline", "pip", "install", *what], cwd=folder, capture_output=True).returncode:
        subprocess.run([*uv, "pip", "install", *what], cwd=folder, check=True)
    return folder


def acme_ext_of(user: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the installed command as a user would, whose shell knows nothing of the checkout."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [user / "venv/bin/acme-ext", *arguments]
    return subprocess.run(command, cwd=user, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_with_its_dependencies_alone_trains_and_evaluates(user):
    train = ["train", "dqn", "gym:CartPole-v1", "--steps", "1500", "--num-envs", "4", "--run-dir", "run"]
    done = acme_ext_of(user, *train, "--eval-episodes", "2")
    assert done.returncode == 0, done.stderr
    score = json.loads((user / "run/evaluation.json").read_text())
    assert len(score["returns"]) == 2
    assert (user / "run/curve.png").is_file()
    done = acme_ext_of(user, "evaluate", "run", "--episodes", "2")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_user_of_the_wheel_is_told_what_to_type(user):
    done = acme_ext_of(user, "doctor")
    assert done.returncode == 0, done.stdout
    assert "problem " not in done.stdout
    constraints = user / "venv/lib/python3.10/site-packages/acme_ext/constraints.txt"
    assert f"the tested versions, of {constraints}" in done.stdout
    advice = f"uv pip install -c {constraints} 'acme-ext[atari]'"  # there is no pip in this environment
    assert advice in done.stdout
    done = acme_ext_of(user, "train", "dqn", "atari:Pong")
    assert done.returncode == 2
    assert advice in done.stderr


@pytest.fixture(scope="module")
def newer(checkout, tmp_path_factory):
    """A user's environment with the newest versions that are locked, on a Python that has neither Reverb nor Acme."""
    if archives.newer_python() is None:
        pytest.skip("there is no Python 3.12 here")
    folder = tmp_path_factory.mktemp("newer")
    archive = archives.build("wheel", checkout, tmp_path_factory.mktemp("dist"))
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run(
        [*uv, "venv", "--python", str(archives.newer_python()), str(folder / "venv")], check=True, cwd=folder
    )
    install = [*uv, "pip", "install", "--python", str(folder / "venv"), "-c", str(ROOT / "requirements/newest.txt")]
    subprocess.run([*install, f"acme-ext[compiled] @ {archive.as_uri()}"], check=True, cwd=folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_another_python_trains_in_one_process_and_compiled_and_has_every_agent(newer):
    run = ["--steps", "1500", "--num-envs", "4", "--run-dir", "here", "--eval-episodes", "2"]
    done = acme_ext_of(newer, "train", "dqn", "gym:CartPole-v1", *run)
    assert done.returncode == 0, done.stderr
    assert (newer / "here/curve.png").is_file()
    assert acme_ext_of(newer, "evaluate", "here", "--episodes", "2").returncode == 0
    run = ["--steps", "400", "--num-envs", "8", "--run-dir", "run", "--eval-episodes", "2"]
    done = acme_ext_of(newer, "train", "dqn", "jax:catch", "--on", "compiled", *run, "--set", "replay.min_size=100")
    assert done.returncode == 0, done.stderr
    assert acme_ext_of(newer, "evaluate", "run").returncode == 0
    run = ["--steps", "400", "--num-envs", "8", "--run-dir", "recurrent", "--eval-episodes", "2"]
    small = ("core_size=8", "replay.min_size=20", "replay.length=6", "replay.period=3")
    few = [word for setting in small for word in ("--set", setting)]
    done = acme_ext_of(newer, "train", "r2d2", "jax:catch", "--on", "compiled", *run, *few)
    assert done.returncode == 0, done.stderr
    done = acme_ext_of(newer, "export", "recurrent", "-o", "recurrent-policy")
    assert done.returncode == 0, done.stderr
    done = acme_ext_of(newer, "export", "run", "-o", "policy")
    assert done.returncode == 0, done.stderr
    done = acme_ext_of(newer, "doctor")
    assert done.returncode == 0, done.stdout
    assert "tables for the replay: embedded" in done.stdout
    assert "0 problems" in done.stdout
    done = acme_ext_of(newer, "record", "run", "-o", "recorded", "--steps", "500")
    assert done.returncode == 0, done.stderr
    few = ["--steps", "100", "--eval-episodes", "2", "--set", "hidden_sizes=8"]
    done = acme_ext_of(newer, "train", "dqn", "data:recorded", "--on", "processes", *few, "--run-dir", "of-data")
    assert done.returncode == 0, done.stderr

    code = """
    from acme_ext import builders, launch
    from acme_ext.errors import UsageError
    environments = ("jax:catch", "jax:Pendulum-v1", "board:tic_tac_toe")
    for name in builders.AGENTS:
        for environment in environments:
            builder = builders.make(name).for_environment(environment)
            experiment = launch.Experiment(builder, environment, steps=100, num_envs=8)
            try:
                experiment.make_agent(experiment.make_spec())
                break
            except UsageError as error:
                assert "needs an environment" in str(error) or "a board game" in str(error), error
        else:
            raise AssertionError(f"{name} is made for none of {environments}")
    for steps in (0, "many"):
        try:
            launch.Experiment(builders.make("dqn"), "jax:catch", steps=steps)
        except UsageError as error:
            assert f"steps is {steps!r}" in str(error), error
        else:
            raise AssertionError(f"steps={steps!r} is not refused")
    """
    command = [newer / "venv/bin/python", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=newer, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

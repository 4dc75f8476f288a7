"""What the README and the pages of docs/ say is so: their code runs, their commands parse, their names exist."""

import ast
import dataclasses
import html
import importlib
import io
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tokenize
import traceback
import urllib.parse
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import saved_runs

from acme_ext import builders, envs, launch
from acme_ext.agents.dqn import losses
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.commands import cli, train, train_on
from acme_ext.data.format import Folder
from acme_ext.envs import registry
from acme_ext.networks.recurrent import CORES
from acme_ext.networks.torsos import TORSOS
from acme_ext.replay import fixed
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils.rundir import CONTENTS
from benchmarks.learning import ablation, offline, settings, strength, validation
from benchmarks.learning import run as learning
from benchmarks.speed import run as speed

ROOT = pathlib.Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
ARCHITECTURE = DOCS / "architecture.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}.*$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"""\]\(([^)\s]+)\)|src="([^"]+)\"""")
FILE = re.compile(r"[\w./-]+\.(py|md|cfg|toml|txt|ipynb|png)")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def read(page: pathlib.Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: pathlib.Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [body for name, body in FENCE.findall(read(page)) if name == language]


def prose(page: pathlib.Path) -> str:
    """A page without its blocks of code."""
    return INDENTED.sub("", FENCE.sub("", read(page)))


def commands(page: pathlib.Path) -> Iterator[list[str]]:
    """The words of every command in a page's shell blocks."""
    for block in blocks(page, "sh"):
        yield from filter(None, (shlex.split(line, comments=True) for line in block.splitlines()))


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every table row but headers, of tables whose first column is code."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.removeprefix("|").removesuffix("|"))]


def search(pattern: str, text: str) -> re.Match[str]:
    match = re.search(pattern, text, re.MULTILINE)
    assert match, f"nothing there is as {pattern!r}"
    return match


def code(cell: str) -> str:
    return search(r"^`([^`]+)`", cell)[1]


@every_page
def test_every_shell_command_is_one_that_exists(page, tmp_path):
    targets = set(re.findall(r"^([\w-]+):", read(ROOT / "Makefile"), re.MULTILINE))
    for words in commands(page):
        match words:
            case ["make", target, *_]:
                assert target in targets
            case ["pip", "install", *what] | ["uv", "pip", "install", *what]:
                assert any(re.fullmatch(r"(acme-ext|acme_ext-[\w.-]+\.whl|\.)(\[[\w,]+\])?", name) for name in what)
            case ["python", "-m", "ipykernel", "install", *_]:
                assert "notebook" in read(ROOT / "setup.cfg")
            case ["uv", "venv", *_, "--python", "3.10" | "3.12"]:
                pass
            case ["python", "-m", "benchmarks.speed", *arguments]:
                speed._parser().parse_args(arguments)
            case ["python", "-m", "benchmarks.learning.recorded", name]:
                assert name in settings.RECORDED
            case ["python", "-m", "benchmarks.learning", *arguments]:
                learning._parser().parse_args(arguments)
            case ["python", "-m", "benchmarks.learning.validation", *arguments]:
                validation._parser().parse_args(arguments)
            case ["python", "-m", "benchmarks.learning.offline", *arguments]:
                offline._parser().parse_args(arguments)
            case ["python", "-m", "benchmarks.learning.strength", *arguments]:
                strength._parser().parse_args(arguments)
            case ["python", "-m", "benchmarks.learning.ablation", *arguments]:
                ablation._parser().parse_args(arguments)
            case ["python", script] if script.endswith(".py"):
                assert (ROOT / script).is_file() or (ROOT / "examples" / script).is_file()
            case ["python", "-m", module]:
                assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module
            case ["acme-ext", *arguments]:
                options = cli.parse(arguments)
                if arguments[0] == "train":
                    if options.environment.startswith("data:"):
                        manifest = {"format": 1, "environment": "gym:CartPole-v1", "environment_options": {}}
                        manifest["shards"] = []
                        manifest["spec"] = {"observations": {"fields": {}}, "actions": {"shape": [], "dtype": "int32"}}
                        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
                        option = options.environment.partition("?")[1:]
                        options.environment = f"data:{tmp_path}{''.join(option)}"
                    train_on.take_flags(options)
                    train.experiment_from(options)  # checks agent, environment, fields, values and options
            case _:
                pytest.fail(f"{shlex.join(words)}: what it does is not known here")


@every_page
def test_every_link_leads_somewhere(page):
    text = FENCE.sub("", read(page))
    for target in filter(None, (a or b for a, b in LINK.findall(text))):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", FENCE.sub("", read(there)), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{page.name} links to {target}"


@every_page
def test_every_file_and_folder_that_is_named_exists(page):
    named = {name.split("::")[0] for name in INLINE.findall(prose(page))}
    paths = {name for name in named if FILE.fullmatch(name) or re.fullmatch(r"[a-z_/]+/", name)}
    missing = [name for name in sorted(paths - RUN_FILES) if not (ROOT / name).exists()]
    assert not missing, f"{page.name} names {missing}"


RUN_FILES = {"config.json", "status.json", "profile.txt", "policy.json", "policy.py", "runs/", "logs/", "tensorboard/"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What is left where the README's first block of Python was run, with a small budget, and its names."""
    (first,) = blocks(README, "python")
    assert "steps=50_000" in first
    folder = tmp_path_factory.mktemp("readme")
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(compile(first.replace("steps=50_000", "steps=1_200"), "README.md", "exec"), names)
    return folder, names


def test_the_readme_trains_an_agent_in_ten_lines(trained):
    folder, names = trained
    (block,) = blocks(README, "python")
    assert len([line for line in block.splitlines() if line]) <= 10
    result = names["result"]
    assert result.environment_steps >= 1_200
    assert result.learner_steps > 0
    # What it is said to print.
    promised = blocks(README, "text")[0]
    assert f"learning curve: {result.curve}" in promised
    assert (folder / result.curve).is_file()
    assert len(result.score.returns) == int(search(r"# of (\d+) greedy episodes", block)[1])


def test_the_measured_run_is_that_of_make_demo_and_the_readme():
    setting = settings.SETTINGS["dqn-cartpole-demo"]
    demo = shlex.split(search(r"^demo:.*\n((?:.*\\\n)*.*)", read(ROOT / "Makefile"))[1].replace("\\\n", " "))
    shown = [words for words in commands(ROOT / "README.md") if words[1:4] == demo[1:4] and "--set" in words]
    assert len(shown) == 1
    for arguments in (demo[1:-1], shown[0][1:]):
        options = cli.parse(arguments)
        assert (options.agent, options.environment, options.steps) == ("dqn", setting.environment, setting.steps)
        assert options.num_envs == setting.num_envs
        assert options.set == [f"{name}={value}" for name, value in setting.config.items()]


def test_a_run_leaves_what_its_page_says(trained):
    folder, names = trained
    run = folder / names["result"].run_dir
    (listing,) = (text for text in blocks(DOCS / "runs.md", "text") if text.startswith("config.json"))
    said = dict(line.split(maxsplit=1) for line in listing.splitlines())
    assert said == {name: CONTENTS[name] for name in said}
    listed = list(said)
    for name in listed:
        assert (run / name).exists(), name
        assert (run / name).is_dir() == name.endswith("/"), name
    assert {path.name for path in run.iterdir()} == {name.split("/")[0] for name in listed}
    assert {path.name for path in (run / "logs").iterdir()} == {
        name.removeprefix("logs/") for name in listed if name.startswith("logs/")
    }


def test_the_agent_that_is_shown_is_the_one_that_is_tested(tmp_path, monkeypatch):
    shown, use = blocks(DOCS / "compose.md", "python")
    example = ROOT / "examples/my_agents.py"
    assert shown == read(example)

    monkeypatch.syspath_prepend(example.parent)
    monkeypatch.chdir(tmp_path)
    assert "steps=12_000" in use
    names: dict[str, Any] = {}
    exec(compile(use.replace("steps=12_000", "steps=200"), "compose.md", "exec"), names)
    assert names["result"].environment_steps >= 200


@pytest.mark.parametrize(
    ("page", "name"), [("own-environment", "my_gym"), ("own-environment", "my_envs"), ("own-network", "my_networks")]
)
def test_examples_are_shown_as_they_are(page, name):
    (shown,) = (block for block in blocks(DOCS / f"{page}.md", "python") if block.startswith(f"# examples/{name}.py"))
    first, _, rest = shown.partition("\n")
    assert first == f"# examples/{name}.py"
    assert read(ROOT / f"examples/{name}.py").endswith(f"\n\n{rest}")


def test_every_example_is_listed():
    listed = re.findall(r"^\| \[(\w+\.py)\]", read(DOCS / "examples.md"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def test_the_logs_are_read_as_their_page_says(trained, monkeypatch):
    folder, _ = trained
    monkeypatch.chdir(folder)
    (block,) = blocks(DOCS / "logging.md", "python")
    exec(compile(block, "logging.md", "exec"), {})
    assert (folder / "dqn.png").is_file()
    logs = folder / "runs/dqn-gym-CartPole-v1-s0/logs"
    for name, columns in re.findall(
        r"^\| `logs/(\w+)\.csv` \|[^|]*\| (.*) \|$", read(DOCS / "logging.md"), re.MULTILINE
    ):
        there = (logs / f"{name}.csv").read_text().splitlines()[0].split(",")
        assert set(re.findall(r"`(\w+)`", columns)) - {"actor", "parameter_lag"} <= set(there)


@pytest.mark.release
def test_a_torso_of_ones_own_is_used_as_its_page_says(tmp_path, monkeypatch):
    _, use = blocks(DOCS / "own-network.md", "python")
    monkeypatch.chdir(tmp_path)
    assert "steps=100_000" in use
    exec(compile(use.replace("steps=100_000", "steps=100"), "own-network.md", "exec"), {})
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "config.json").read_text())["builder"]["torso"] == "my_networks:make_torso"


def test_a_trained_policy_acts_as_its_page_shows(tmp_path, monkeypatch):
    (two_lines,) = (block for block in blocks(DOCS / "policies.md", "python") if "launch.load" in block)
    (memory,) = (block for block in blocks(DOCS / "policies.md", "python") if "state = None" in block)
    path = search(r'launch.load\("(.+)"\)', two_lines)[1]
    saved_runs.save(tmp_path / path, builders.DQN(), "gym:CartPole-v1")
    monkeypatch.chdir(tmp_path)
    exec(two_lines, {})
    names = {"run": launch.load(saved_runs.save(tmp_path / "memory", builders.R2D2(), "bsuite:catch/0"))}
    exec(memory, names)
    assert 0 <= names["action"] < 3
    assert names["state"] is not None


@pytest.mark.parametrize("page", ["start", "package"])
def test_an_experiment_that_a_page_shows_is_run(page, tmp_path, monkeypatch):
    block, *_ = blocks(DOCS / f"{page}.md", "python")
    assert "steps=50_000" in block
    monkeypatch.chdir(tmp_path)
    exec(compile(block.replace("steps=50_000", "steps=200"), page, "exec"), {})
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "evaluation.json").is_file()


def test_a_preset_is_changed_as_the_first_page_shows():
    _, block = blocks(DOCS / "start.md", "python")
    names: dict[str, Any] = {}
    exec(compile(block, "start", "exec"), names)
    preset = builders.DQN().for_environment("atari:Pong")
    assert names["builder"] == preset.replace(config=dataclasses.replace(preset.config, learning_rate=1e-4))
    assert names["builder"] != preset


@pytest.mark.release
def test_a_node_of_ones_own_is_part_of_a_program_as_its_page_shows(tmp_path, capsys):
    (block,) = blocks(DOCS / "programs.md", "python")
    names = {"__name__": "shown"}
    assert "wait_for_stop(10)" in block
    exec(compile(block.replace("wait_for_stop(10)", "wait_for_stop(0.2)"), "programs.md", "exec"), names)
    experiment = launch.Experiment(builders.DQN(), "gym:CartPole-v1", steps=200, run_dir=tmp_path / "run")
    launch.run(experiment, launch.Threads(actors=2, extend=names["extend"]))
    assert re.search(r"^[1-9]\d* arrays of parameters after [\d,]+ steps$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.release
def test_recorded_data_is_read_and_learned_from_as_its_page_shows(tmp_path, monkeypatch):
    reading, mixing, learning_ = blocks(DOCS / "fixed-data.md", "python")
    run = saved_runs.save(tmp_path / "run", builders.DQN(), "gym:CartPole-v1")
    monkeypatch.chdir(tmp_path)
    for name, policy in (("expert", "evaluation"), ("random", "random")):
        assert cli.main(["record", str(run), "-o", f"data/{name}", "--steps", "300", "--policy", policy]) == 0
    exec(reading, {})
    assert "steps=20_000" in learning_
    exec(compile(learning_.replace("steps=20_000", "steps=50"), "fixed-data.md", "exec"), {})

    names: dict[str, Any] = {}
    exec(mixing, names)
    experiment = launch.Experiment(builders.DQN(), "gym:CartPole-v1")
    replay = experiment.make_agent(experiment.make_spec()).replay
    own = fixed.FixedBatches(fixed.rows_of(replay, Folder("data/expert").episodes()), 64, seed=0)
    assert set(next(names["mix"](own, replay, 64)).source) == {0, 1, 2}


def test_an_exported_policy_acts_as_its_page_shows(tmp_path, monkeypatch):
    numpy_alone, onnx = blocks(DOCS / "policies.md", "python")[2:]
    run = saved_runs.save(tmp_path / "run", builders.DQN(), "gym:CartPole-v1")
    assert cli.main(["export", str(run), "-o", str(tmp_path / "policy"), "--onnx"]) == 0
    monkeypatch.chdir(tmp_path / "policy")
    monkeypatch.syspath_prepend(tmp_path / "policy")
    names = {"observation": np.array([0.0, 0.1, 0.0, -0.1], np.float32)}
    exec(numpy_alone, names)
    sys.modules.pop("policy")
    action = int(names["action"])
    exec(onnx, names)
    assert names["action"].tolist() == [action]


def test_every_block_of_python_is_run():
    """By a test above, that of compiled.md in tests/launch/test_compiled.py; architecture.md's are compared below."""
    there = {page.relative_to(ROOT).as_posix(): len(blocks(page, "python")) for page in PAGES}
    assert {page: count for page, count in there.items() if count} == {
        "README.md": 1,
        "docs/architecture.md": 12,
        "docs/compiled.md": 1,
        "docs/compose.md": 2,
        "docs/fixed-data.md": 3,
        "docs/logging.md": 1,
        "docs/own-environment.md": 2,
        "docs/own-network.md": 2,
        "docs/package.md": 1,
        "docs/policies.md": 4,
        "docs/programs.md": 1,
        "docs/start.md": 2,
    }
    assert not [page for page in PAGES if re.search(r"^ {4}(from|import) ", FENCE.sub("", read(page)), re.MULTILINE)]


def test_what_is_said_of_the_agents_test_is_what_it_asks():
    claim = search(r"mean\s+return\s+of\s+([\d.]+)\s+on\s+catch\s+after\s+([\d,]+)\s+steps", read(DOCS / "compose.md"))
    test = read(ROOT / "tests/examples/test_my_agents.py")
    assert f".mean() >= {claim[1]}" in test
    assert f"steps={claim[2].replace(',', '_')}," in test


def test_every_agent_is_listed_and_has_a_page():
    for page, folder in ((README, "docs/agents/"), (DOCS / "agents.md", "agents/")):
        listed = {code(row[0]): row for row in rows(prose(page))}
        assert [name for name in listed if name in builders.AGENTS] == list(builders.AGENTS)
        for name, (cls, _) in builders.AGENTS.items():
            assert f"[{cls}]({folder}{name}.md)" in listed[name][1]


def test_every_family_of_environments_is_listed():
    listed = {code(row[0]): row for row in rows(prose(DOCS / "environments.md"))}
    families = {family.pattern: family for family in envs.families()}
    assert [name for name in listed if ":" in name] == list(families)
    for name, family in families.items():
        _, example, summary, extra = listed[name]
        assert code(example) == family.example
        assert summary.replace("`", "") == family.summary
        assert (code(extra) if extra else None) == family.extra
        assert f"`{name.partition(':')[0]}:`" in read(README)


@pytest.mark.parametrize(
    "environment",
    ["atari:Pong", "dmc:cartpole/swingup", "minatar:breakout", "minigrid:Empty-5x5", "board:tic_tac_toe"],
)
def test_every_option_of_a_family_is_listed_with_its_default(environment):
    family = f"`{environment.partition(':')[0]}:`"
    listed = {code(row[0]): code(row[2]) for row in rows(prose(DOCS / "environments.md")) if family in row[1]}
    backend, name, _ = registry._resolve(environment, {})
    options = {key: str(value).lower() for key, value in backend.options(name).items() if value is not None}
    assert {key: value.replace("_", "") for key, value in listed.items() if key in options} == options
    assert listed.keys() == backend.options(name).keys()


def test_the_readme_is_short():
    assert len(read(README).encode()) <= 9_000


@pytest.mark.slow
def test_the_site_is_built_without_a_broken_link(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {page.relative_to(tmp_path).with_suffix(".md") for page in tmp_path.rglob("*.html")}
    assert {page.relative_to(DOCS) for page in DOCS.rglob("*.md") if page.name != "package.md"} <= pages
    assert "acme-ext train" in (tmp_path / "reference/command-line.html").read_text(encoding="utf-8")
    fields = (tmp_path / "reference/fields.html").read_text(encoding="utf-8")
    assert "gamma per step; Mnih et al. 2015, table 1" in fields
    assert all(f'id="{name}"' in fields for name in builders.AGENTS)
    assert broken_links(tmp_path) == []
    index = (tmp_path / "search/search_index.json").read_text(encoding="utf-8")
    assert "prioritized" in index


def broken_links(site: pathlib.Path) -> list[str]:
    """The links of a built site to a file or an anchor that it hasn't."""
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    anchors = {page: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for page, text in texts.items()}
    broken = []
    for page, text in texts.items():
        for link in set(re.findall(r'(?:href|src)="([^"]+)"', text)):
            parts = urllib.parse.urlsplit(html.unescape(link))
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            anchor = urllib.parse.unquote(parts.fragment)
            known = anchors.get(target, set())
            if not target.is_file() or (anchor and target in anchors and anchor not in known | {"__toc", "__search"}):
                broken.append(f"{page.relative_to(site)} links to {link}")
    return broken


def leaves(config: object, prefix: str = "") -> dict[str, object]:
    """The fields of a config by dotted name, nested configs taken apart."""
    found: dict[str, object] = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        nested = dataclasses.is_dataclass(value)
        found.update(leaves(value, f"{prefix}{field.name}.") if nested else {prefix + field.name: value})
    return found


GROUPS = ("replay", "search", "distillation")
"""Configs within a config, of which a table may say something too."""


def settings_of(builder: builders.Builder) -> dict[str, object]:
    """What `--set NAME=VALUE` can set to a plain value: the config's fields and the parts that have names."""
    parts = {field.name: getattr(builder, field.name) for field in dataclasses.fields(builder)}
    return {**leaves(builder.config), **{name: parts[name] for name in ("torso", "core") if name in parts}}


@pytest.mark.parametrize("name", builders.AGENTS)
def test_the_tables_of_fields_are_those_that_the_configs_make(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    tables = importlib.import_module("config_tables")
    page = read(ROOT / f"docs/agents/{name}.md")
    assert tables.page_of(name, page) == page, "python scripts/config_tables.py writes them anew"


@pytest.mark.parametrize("name", builders.AGENTS)
def test_an_agents_page_gives_every_field_its_value(name):
    builder = builders.load(name)()
    usual = settings_of(builder)
    page = read(ROOT / f"docs/agents/{name}.md").partition("## The config")[2]
    listed = {code(field): values for field, *values in rows(page)}
    listed = {field: values for field, values in listed.items() if field not in GROUPS}
    assert sorted(listed) == sorted(usual)
    presets = [settings_of(dataclasses.replace(builder, **preset.fields)) for preset in builder.presets.values()]
    for field, (value, *of_presets, _) in listed.items():
        assert ast.literal_eval(code(value)) == usual[field], field
        for preset, given in zip(presets, of_presets, strict=True):
            assert preset[field] == (ast.literal_eval(code(given)) if given else usual[field]), field
    for part, names in (("torso", TORSOS), ("core", CORES)):
        if part in listed:
            assert names.keys() <= set(INLINE.findall(listed[part][-1])), part


def definitions(source: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def fields(node: ast.ClassDef) -> dict[str, str]:
    """The annotated public names of a class, but for those of the class alone, in their order."""
    annotated = (n for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name))
    texts = {n.target.id: ast.unparse(n.annotation) for n in annotated}  # type: ignore[union-attr]
    return {name: text for name, text in texts.items() if not text.startswith("ClassVar")}


def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}


def contracts() -> list[tuple[str, ast.ClassDef]]:
    """Every class that docs/architecture.md writes down, with the file it is said to be in."""
    found = []
    for block in blocks(ARCHITECTURE, "python"):
        path = re.match(r"# (\S+\.py)\n", block)
        assert path, "a contract begins with the file it is in"
        found += [(path[1], node) for node in definitions(block).values()]
    return found


@pytest.mark.parametrize(("path", "said"), contracts(), ids=lambda value: getattr(value, "name", ""))
def test_contracts_are_as_written_down(path, said):
    """All fields of a class; of its methods those that are listed, but for parameters that may be left out."""
    stands = definitions(read(ROOT / path))[said.name]
    assert [ast.unparse(base) for base in said.bases] == [ast.unparse(base) for base in stands.bases]
    assert fields(said) == fields(stands)
    for name, method in methods(said).items():
        there = methods(stands)[name]
        assert ast.unparse(method.returns) == ast.unparse(there.returns), name  # type: ignore[arg-type]
        listed = parameters(method)
        assert listed == {key: value for key, value in parameters(there).items() if key in listed}, name
        assert required(there) <= listed.keys(), name


def parameters(method: ast.FunctionDef) -> dict[str, str]:
    every = [*method.args.args, *method.args.kwonlyargs]
    return {arg.arg: ast.unparse(arg.annotation) for arg in every if arg.annotation}


def required(method: ast.FunctionDef) -> set[str]:
    """The parameters that have no default."""
    arguments = method.args
    positional = arguments.args[1 : len(arguments.args) - len(arguments.defaults)]
    keyword = [a for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    return {argument.arg for argument in [*positional, *keyword]}


def lines_of_code(source: str) -> int:
    """The lines that hold code: no blank ones, no comments, no docstrings."""
    tree = ast.parse(source)
    texts = [n for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    documentation = {
        line
        for n in texts
        if isinstance(n.value, ast.Constant) and isinstance(n.value.value, str)
        for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)
    }
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in layout]
    return len({line for t in tokens for line in range(t.start[0], t.end[0] + 1)} - documentation)


def test_lines_of_code_are_without_blanks_comments_and_docstrings():
    source = '"""Of the\n\nmodule."""\n\nX = 1  # one\n"""Of X."""\n\n# and\ndef f(\n    a,\n\n    # b\n):\n'
    assert lines_of_code(source + '    """Of f."""\n    return """a\n\nb"""\n') == 1 + 3 + 3


def test_a_reader_opens_no_more_than_is_said():
    text = read(ARCHITECTURE)
    path, beside = (
        [code(row[0]) for row in rows(part.partition("<!-- count: end -->")[0])]
        for part in re.split(r"<!-- count: (?:path|beside) -->", text)[1:]
    )
    said = re.findall(r"(\d+) files with at most ([\d,]+) lines of code", text)
    for files, (count, lines) in zip((path, path + beside), said, strict=True):
        assert len(set(files)) == len(files) == int(count)
        assert sum(lines_of_code(read(ROOT / file)) for file in files) <= int(lines.replace(",", ""))


def test_the_error_is_as_few_calls_below_the_run_as_is_said(tmp_path, monkeypatch):
    depths = []

    def td_error(*arguments):
        stack = [frame.filename for frame in traceback.extract_stack()]
        ours = [name for name in stack if name.startswith(f"{ROOT / 'acme_ext'}/")]
        depths.append(len(ours) + 1)  # its own, which this stands for
        return own(*arguments)

    own = losses.td_error
    monkeypatch.setattr(losses, "td_error", td_error)
    config = DQNConfig(batch_size=8, normalize_observations=False, replay=TransitionConfig(min_size=16))
    agent = builders.DQN(config, average_rate=None)
    evaluation = launch.Evaluation(every=0, final_episodes=1)
    launch.run(
        launch.Experiment(agent, "bsuite:catch/0", steps=60, evaluation=evaluation, run_dir=tmp_path), quiet=True
    )
    assert max(depths) == int(search(r"passes at most (\d+) calls", read(ARCHITECTURE))[1])


def test_every_link_of_the_ring_has_its_file():
    page = DOCS / "concepts.md"
    links = [row for row in prose(page).splitlines() if row.startswith("| ") and "`acme_ext/" in row]
    ring = search(r"^    (environment -> .*)$", read(page))[1].split(" -> ")
    assert search(r"^    (environment -> .*)$", read(README))[1].split(" -> ") == ring
    assert [row.split("|")[1].strip() for row in links] == ring[:-1]
    assert ring[-1] == "actor"

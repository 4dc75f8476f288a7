"""Every import of the package is held to the floors of docs/architecture.md: imports go down only."""

import ast
import functools
import importlib.metadata
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest
from packaging.requirements import Requirement

import acme_ext

PACKAGE = pathlib.Path(acme_ext.__file__).parent

FLOORS = [
    {"types", "specs", "errors", "interfaces", "config", "utils"},
    {"ops", "networks", "envs", "acting", "data", "replay", "learning"},
    {"agents"},
    {"builders"},
    {"launch"},
    {"commands", "__main__"},
]
FLOOR_OF = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
PARTS = set(FLOOR_OF)

# The rooms of the second floor, with those that each may import.
ROOMS: dict[str, set[str]] = {
    "ops": set(),
    "networks": {"ops"},
    "envs": set(),
    "replay": set(),
    "acting": {"ops", "networks", "envs"},
    "learning": {"ops", "networks", "acting", "replay"},
    "data": {"envs"},
}

# What may be imported in which parts only. The last ones import TensorFlow: 7 s and 420 MB for every process.
ONLY_IN = {
    "launchpad": {"launch"},
    "ray": {"launch"},
    "reverb": {"replay", "launch"},
    "acme.adders": {"replay"},
    "acme.datasets": {"replay"},
    "tensorflow": {"replay"},
    "acme": PARTS - {"agents", "ops", "networks"},
    "acme.tf": set(),
    "acme.jax": set(),
    "rlax": set(),
    "distrax": set(),
    "tensorflow_probability": set(),
    "benchmarks": set(),
    "notebooks": set(),
    "tests": set(),
}

# The agents an agent is made of, and may import.
PARENTS: dict[str, set[str]] = {
    "apex": {"dqn"},
    "rainbow": {"dqn"},
    "a2c": {"ppo"},
    "rnd": {"ppo"},
    "ngu": {"r2d2"},
    "agent57": {"ngu", "r2d2"},
    "alphazero": {"muzero"},
    "bcq": {"dqn"},
    "bdqn": {"dqn"},
    "crr": {"iql"},
    "dqfd": {"dqn"},
    "sqil": {"dqn", "sac"},
    "discrete_sac": {"sac"},
    "cql": {"sac"},
    "discrete_cql": {"dqn"},
    "td3_bc": {"td3"},
}

# What runs on any machine with a modern JAX, so neither it nor anything below it imports these.
PORTABLE = ("agents", "ops", "networks")
NOT_PORTABLE = ("reverb", "tensorflow", "launchpad", "acme", "rlax", "distrax", "tensorflow_probability")

# What answers at once, so that `acme-ext --help` does.
HEAVY = {"jax", "haiku", "optax", "tensorflow", "reverb", "launchpad", "acme", "matplotlib", "gymnasium", "ray"}
LIGHT_MODULES = {"acme_ext.commands.cli", "acme_ext.commands.doctor"}


def sources() -> dict[str, tuple[str, bool]]:
    """The package's modules: {dotted name: (source, whether it is a package)}."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        found[".".join(parts[:-1] if is_package else parts)] = (path.read_text(encoding="utf-8"), is_package)
    return found


def imports_in(source: str, module: str, is_package: bool) -> Iterator[str]:
    """Every name a module imports, at whatever depth, dotted and absolute; `from a import b` gives `a.b`."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, node.module] if node.module else above)
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            # The constant beginning of a computed name is enough to tell the floor.
            text = node.args[0]
            text = text.values[0] if isinstance(text, ast.JoinedStr) else text
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text.value.rstrip(".")


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def violations(modules: Mapping[str, tuple[str, bool]], parents: Mapping[str, set[str]]) -> list[str]:
    """What breaks the floors, a sentence each."""
    found = []
    for module, (source, is_package) in modules.items():
        part, _, inside = module.removeprefix("acme_ext").lstrip(".").partition(".")
        if part and part not in FLOOR_OF:
            found.append(f"{module} stands on no floor")
            continue
        for name in imports_in(source, module, is_package):
            for prefix, allowed in ONLY_IN.items():
                if within(name, prefix) and part not in allowed:
                    found.append(f"{module} imports {name}, which only {sorted(allowed)} may")
            if not within(name, "acme_ext"):
                continue
            target, _, target_inside = name.removeprefix("acme_ext").lstrip(".").partition(".")
            if part and FLOOR_OF.get(target, 0) > FLOOR_OF[part]:
                found.append(f"{module} imports {name}, which is a floor above it")
            if part in ROOMS and target in ROOMS.keys() - ROOMS[part] - {part}:
                found.append(f"{module} imports {name}, and {part} may import {sorted(ROOMS[part])} of its floor")
            agent, other = inside.split(".")[0], target_inside.split(".")[0]
            if part == target == "agents" and other not in {agent, *parents.get(agent, ())}:
                found.append(f"{module} imports {name}, and {other} is no declared parent of {agent}")
    return found


def circle_in(arrows: Mapping[str, set[str]]) -> list[str]:
    """What is in a circle of arrows, or between two circles."""
    left = {start: set(ends) for start, ends in arrows.items()}
    while True:
        pointed_at = {end for ends in left.values() for end in ends}
        done = {name for name, ends in left.items() if name not in pointed_at or not ends & left.keys()}
        if not done:
            return sorted(left)
        left = {name: ends for name, ends in left.items() if name not in done}


def test_ray_is_imported_where_programs_run_on_it_and_nowhere_else():
    found = {
        module
        for module, (source, is_package) in sources().items()
        if any(within(name, "ray") for name in imports_in(source, module, is_package))
    }
    assert found
    assert all(within(module, "acme_ext.launch.hosts.ray") for module in found)


def test_launchpad_is_imported_by_one_module():
    found = {
        module
        for module, (source, is_package) in sources().items()
        if any(within(name, "launchpad") or within(name, "courier") for name in imports_in(source, module, is_package))
    }
    assert found == {"acme_ext.launch.hosts.launchpad"}


def test_imports_go_down_only():
    assert violations(sources(), PARENTS) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("acme_ext.ops.value", "import acme_ext.agents.dqn.losses"),
        ("acme_ext.agents.dqn.losses", "from acme_ext import builders"),
        ("acme_ext.builders.dqn", "def f():\n    from acme_ext.launch.engines import in_process"),
        ("acme_ext.utils.files", "from ..acting import actor"),
        ("acme_ext.envs.gym", "import importlib\nimportlib.import_module('acme_ext.commands.cli')"),
        ("acme_ext.launch.engines.in_process", "from acme_ext.commands import cli"),
        ("acme_ext.envs.gym", "from importlib import import_module\nimport_module(f'acme_ext.builders.{x}')"),
        ("acme_ext.agents.iqn.losses", "from acme_ext.agents.dqn import losses"),
        ("acme_ext.agents.iqn.losses", "from ..dqn import losses"),
        ("acme_ext.acting.actor", "import reverb"),
        ("acme_ext.acting.actor", "from acme.adders import reverb"),
        ("acme_ext.launch.engines.in_process", "import tensorflow as tf"),
        ("acme_ext.replay.server", "from launchpad.nodes import reverb"),
        ("acme_ext.learning.core", "from rlax import huber_loss"),
        ("acme_ext.networks.heads", "import acme.specs"),
        ("acme_ext.launch.engines.in_process", "from benchmarks import speed"),
        ("acme_ext.misc.things", ""),
        ("acme_ext.acting.remote", "from acme_ext.replay.base import Replay"),
        ("acme_ext.acting.stochastic", "from acme_ext import learning"),
        ("acme_ext.replay.unrolls", "from acme_ext.ops import multistep"),
    ],
)
def test_each_way_up_or_aside_is_found(module, line):
    assert violations({module: (line, False)}, {}) != []


def test_ways_down_are_free_and_a_declared_parent_may_be_imported():
    modules = {
        "acme_ext.agents.rainbow.losses": ("from acme_ext.agents.dqn import losses\nfrom . import config", False),
        "acme_ext.commands.cli": ("from acme_ext import builders, envs, launch", False),
        "acme_ext.launch.engines.program.program": (
            "import launchpad, reverb\nfrom acme_ext import builders, envs",
            False,
        ),
        "acme_ext.replay": ("from acme_ext.replay.reverb.store import ReverbStore\nimport tensorflow", True),
        "acme_ext": ("", True),
    }
    assert violations(modules, {"rainbow": {"dqn"}}) == []
    assert len(violations(modules, {})) == 1


def test_modules_make_no_circle_of_imports():
    """Imports inside functions and for types included; a package's own module only collects names."""
    modules = {module: source for module, (source, is_package) in sources().items() if not is_package}

    def imported(module: str) -> set[str]:
        names = imports_in(modules[module], module, False)
        return {name if name in modules else name.rpartition(".")[0] for name in names} & modules.keys() - {module}

    assert circle_in({module: imported(module) for module in modules}) == []


def test_the_rooms_are_those_of_a_floor_and_make_no_circle():
    assert ROOMS.keys() == FLOORS[1]
    assert circle_in(ROOMS) == []


def test_declared_parents_are_agents_and_make_no_circle():
    agents = {module.split(".")[2] for module in sources() if module.startswith("acme_ext.agents.")}
    assert set(PARENTS) | {parent for parents in PARENTS.values() for parent in parents} <= agents
    assert circle_in(PARENTS) == []


def run_python(code: str) -> str:
    """Runs code in a fresh interpreter and returns what it printed; what it raised is the failure's text."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_agents_ops_and_networks_import_where_the_rest_of_the_stack_is_missing():
    modules = [m for m in sources() if any(within(m, f"acme_ext.{part}") for part in PORTABLE)]
    assert len(modules) > len(PORTABLE)
    run_python(
        "import importlib, sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {NOT_PORTABLE!r}:\n"
        "            raise ModuleNotFoundError(f'{name} is not portable', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        f"for module in {modules!r}:\n"
        "    importlib.import_module(module)\n"
    )


def test_packages_and_the_command_line_import_nothing_heavy():
    light = [module for module, (_, is_package) in sources().items() if is_package or module in LIGHT_MODULES]
    assert set(light) >= LIGHT_MODULES
    loaded = run_python(
        f"import importlib, sys\nfor module in {light!r}:\n    importlib.import_module(module)\nprint(*sys.modules)"
    )
    assert not HEAVY & set(loaded.split())


def test_every_third_party_import_is_declared():
    """What the package imports is a requirement of its own, or of an extra; not what another one happens to bring."""
    imported = {
        name.split(".")[0]
        for module, (source, is_package) in sources().items()
        for name in imports_in(source, module, is_package)
    }
    requirements = [Requirement(line) for line in importlib.metadata.requires("acme-ext") or []]
    folders = {
        file.parts[0].partition(".")[0]  # a folder, a file of Python or a compiled one
        for requirement in requirements
        if not requirement.extras
        and not any(f'"{extra}"' in str(requirement.marker) for extra in ("test", "newer", "dev", "cuda"))
        for file in importlib.metadata.files(requirement.name) or []
    }
    undeclared = imported - sys.stdlib_module_names - {"acme_ext"} - folders
    assert not undeclared, f"{sorted(undeclared)} are imported and not in setup.cfg"


def unread_fields(config: str, readers: list[str]) -> list[str]:
    """The fields of the dataclasses in `config` that no reader reads, nor a method of a config's class other than its
    check.

    A read is `config.field`, or `c.field` where the module has `c = ... config` or an argument `c: NAMEConfig`.
    """
    tree = ast.parse(config)
    classes = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list)
    ]
    read = {name for source in readers for name in reads_of(source)} | methods_reads(classes)
    fields = [
        n.target.id for c in classes for n in c.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    ]
    return [field for field in fields if field not in read]


@functools.cache
def reads_of(source: str) -> set[str]:
    """The fields that a module reads of any config."""
    module = ast.parse(source)
    configs = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name.endswith("Config")]
    return attributes_of(module, config_names(module)) | methods_reads(configs)


def methods_reads(classes: list[ast.ClassDef]) -> set[str]:
    """What the methods of configs read of them, but for their checks."""
    methods = [node for c in classes for node in c.body if isinstance(node, ast.FunctionDef)]
    return {name for m in methods if m.name != "__post_init__" for name in attributes_of(m, {"self"})}


def config_names(tree: ast.AST) -> set[str]:
    """The names that stand for a config in a module."""
    names = {"config"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value).endswith("config"):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.arg) and node.annotation and ast.unparse(node.annotation).endswith("Config"):
            names.add(node.arg)
    return names


def attributes_of(tree: ast.AST, names: set[str]) -> set[str]:
    """The attributes that are read of any of these names, or of an attribute of such a name (`self.config.field`).

    By `getattr` too, with a name that is written out.
    """

    def is_read(value: ast.AST) -> bool:
        return ast.unparse(value).lstrip("_").rpartition(".")[2].lstrip("_") in names

    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and is_read(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and is_read(node.args[0]):
            found.add(getattr(node.args[1], "value", ""))
    return found


def config_files() -> list[pathlib.Path]:
    return [*sorted(PACKAGE.glob("agents/*/config.py")), PACKAGE / "replay" / "config.py"]


@pytest.mark.parametrize("path", config_files(), ids=lambda path: path.parent.name)
def test_every_field_of_a_config_is_read(path):
    readers = [p.read_text(encoding="utf-8") for p in PACKAGE.rglob("*.py") if p != path]
    assert unread_fields(path.read_text(encoding="utf-8"), readers) == []


def test_an_unread_field_is_found():
    config = (
        "import dataclasses\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class C:\n"
        "    a: int = 1\n    b: int = 2\n    c: int = 3\n    d: int = 4\n    e: int = 5\n"
        "    def __post_init__(self):\n        assert self.d > 0\n"
        "    def twice(self):\n        return 2 * self.e\n"
    )
    readers = ["def f(config):\n    return config.a + batch.d", "def g(self):\n    c = self.config\n    return c.b"]
    assert unread_fields(config, readers) == ["c", "d"]
    assert unread_fields(config, [*readers, "def h(x: dqn.DQNConfig):\n    return x.c + self._config.d"]) == []

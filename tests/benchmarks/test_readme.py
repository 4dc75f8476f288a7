import pathlib
import re

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


def test_the_readme_lists_every_command():
    listed = set(re.findall(r"^\| `python -m (benchmarks[\w.]*)", (BENCHMARKS / "README.md").read_text(), re.MULTILINE))
    commands = {
        path.relative_to(BENCHMARKS.parent).with_suffix("").as_posix().replace("/", ".").removesuffix(".__main__")
        for path in BENCHMARKS.glob("*/*.py")
        if 'if __name__ == "__main__":' in path.read_text()
    }
    assert listed == commands


def test_the_readme_names_every_module():
    text = (BENCHMARKS / "README.md").read_text()
    modules = {path.stem for path in BENCHMARKS.glob("*/*.py") if not path.stem.startswith("__")} - {"run"}
    assert {name for name in modules if not re.search(rf"\b{name}\b", text)} == set()

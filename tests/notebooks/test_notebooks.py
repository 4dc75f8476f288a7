"""Every notebook is clean as committed, and those beside the quickstart run and show what they are there for.

The quickstart runs on both Pythons. The others run on one each.
"""

import json
import os
import re

import nbformat
import pytest
from opened import NOTEBOOKS, SETUP, picture, read, text, with_cells

NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
PID = "import json, os\nprint(json.dumps(os.getpid()))"


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_file_is_clean(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
            assert not re.search(r"^\s*[%!]", cell.source, re.MULTILINE), "no magics: plain Python runs anywhere"


def test_all_set_up_by_the_same_cell():
    notebooks = [read(name) for name in NAMES if name != "compiled"]
    assert len(notebooks) == 3
    cells = [next(cell for cell in notebook.cells if cell.cell_type == "code") for notebook in notebooks]
    assert {cell.id for cell in cells} == {SETUP}
    (source,) = {cell.source for cell in cells}
    assert len(source.splitlines()) <= 10


@pytest.mark.release
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", ["3.12"], indirect=True)
def test_distributed(execute):
    nb = execute(with_cells(read("distributed"), PID, PID))
    assert picture(nb, "curve").startswith(b"\x89PNG")
    who = re.findall(r"actor (\d): +(\d+) episodes, +([\d,]+) steps", text(nb, "who"))
    assert [actor for actor, *_ in who] == ["0", "1"]
    assert all(int(episodes) > 0 for _, episodes, _ in who)
    nodes = text(nb, "nodes").split()
    assert [name for name in nodes if name.startswith("actor")] == ["actor-0.log", "actor-1.log"]
    assert int(re.search(r"after ([\d,]+) steps", text(nb, "on"))[1].replace(",", "")) >= 12_000
    assert "return" in text(nb, "server")
    assert re.search(r"\d+ steps\n", text(nb, "own"))
    with pytest.raises(ProcessLookupError):
        os.kill(json.loads(text(nb, "after")), 0)


@pytest.mark.release
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", ["3.10"], indirect=True)
def test_new_agent(execute):
    nb = execute(with_cells(read("new_agent"), PID, PID))
    assert "[0.4" in text(nb, "loss")
    returns = re.findall(r"(expected_sarsa|dqn) +seed \d  return (\S+)", text(nb, "train"))
    assert len(returns) == 6
    assert all(float(value) >= 0.5 for name, value in returns if name == "expected_sarsa")
    assert picture(nb, "curves").startswith(b"\x89PNG")
    assert text(nb, "act").split(" -> ")[-1].strip() == "9"


@pytest.mark.release
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", ["3.12"], indirect=True)
def test_compiled(execute):
    nb = execute(read("compiled"))
    assert "installed in" in text(nb, SETUP)
    returns = [float(value) for value in re.findall(r"return +([\d.]+), from", text(nb, "scores"))]
    assert len(returns) == 10
    assert sum(returns) / 10 >= 400
    assert picture(nb, "plot").startswith(b"\x89PNG")

"""The quickstart notebook is run as a reader would run it, and what it shows is looked at."""

import base64
import json
import os
import pathlib
import re
import struct
import sys

import nbclient
import nbformat
import pytest

NOTEBOOK = pathlib.Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"

# Cells around the notebook's own, which tell what it found and what it left behind.
BEFORE = """
import os, threading, psutil
def standing():
    me = psutil.Process()
    # ZeroMQ starts a thread of its own when it first sends something as large as a figure.
    threads = {t.name for t in threading.enumerate() if not type(t).__module__.startswith("zmq.")}
    ports = {c.laddr.port for c in me.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    return {"threads": threads, "ports": ports, "children": set(me.children())}
at_first = standing()
"""
AFTER = """
import json
at_last = standing()
print(json.dumps({
    "pid": os.getpid(),
    "left": [str(thing) for kind in at_first for thing in at_last[kind] - at_first[kind]],
    "score": score.returns.mean(),
    "went_round": {
        "observation": (transition.observation == observation).all().item(),
        "action": (transition.action == action).all().item(),
        "reward": transition.reward.item(),
        "discount": transition.discount.item(),
        "next_observation": bool((transition.next_observation != observation).any()),
    },
    "values": [old, unchanged, new],
    "allowed_steps": int(replay.samples_allowed(writer.inserted)) // replay.batch_size - 1,  # one batch it took itself
    "learner_steps": learner.steps,
}))
"""


@pytest.fixture(scope="module")
def notebook() -> nbformat.NotebookNode:
    """The notebook as it is committed."""
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def executed(notebook, tmp_path_factory) -> nbformat.NotebookNode:
    """The notebook with its outputs, a cell before its own and one behind them."""
    home = tmp_path_factory.mktemp("jupyter")
    work, scratch = home / "work", home / "tmp"
    for folder in (work, scratch, home / "kernels" / "python3"):
        folder.mkdir(parents=True)
    # A kernel of this very interpreter, found before any other of the same name; nothing is read from or written to the
    # user's own Jupyter and IPython folders.
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python 3", "language": "python"}
    (home / "kernels" / "python3" / "kernel.json").write_text(json.dumps(spec))
    jupyter = {
        "JUPYTER_PATH": str(home),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    nb = nbformat.from_dict(notebook)
    nb.cells = [nbformat.v4.new_code_cell(BEFORE), *nb.cells, nbformat.v4.new_code_cell(AFTER, id="after")]
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    environ |= jupyter | {"TMPDIR": str(scratch), "PYTHONPATH": str(NOTEBOOK.parents[1])}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in jupyter.items():
            patch.setenv(name, value)
        client = nbclient.NotebookClient(
            nb, timeout=120, startup_timeout=60, resources={"metadata": {"path": str(work)}}
        )
        client.execute(env=environ)  # raises what a cell raised
    assert list(work.iterdir()) == []
    assert list(scratch.iterdir()) == []
    return nb


@pytest.fixture(scope="module")
def facts(executed) -> dict:
    """What the last cell told."""
    return json.loads(text(executed, "after"))


def outputs(nb: nbformat.NotebookNode, cell_id: str) -> list:
    (cell,) = [cell for cell in nb.cells if cell.id == cell_id]
    return cell.outputs


def text(nb: nbformat.NotebookNode, cell_id: str, stream: str = "stdout") -> str:
    return "".join(out.text for out in outputs(nb, cell_id) if out.output_type == "stream" and out.name == stream)


def test_the_committed_file_is_clean(notebook):
    nbformat.validate(notebook)
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) >= 10
    for cell in code:
        assert cell.outputs == []
        assert cell.execution_count is None
        assert not re.search(r"^\s*[%!]", cell.source, re.MULTILINE), "no magics: plain Python runs anywhere"


@pytest.mark.slow
def test_every_cell_runs_and_only_progress_goes_to_stderr(executed):
    for cell in executed.cells:
        if cell.cell_type == "code":
            assert cell.execution_count is not None
            assert not [out for out in cell.outputs if out.output_type == "error"]
            if cell.id != "train":
                assert text(executed, cell.id, "stderr") == ""
    assert re.search(r"100% +25,0\d\d/25,000 steps", text(executed, "train", "stderr"))
    assert "[reverb/" not in text(executed, "train", "stderr")


@pytest.mark.slow
def test_the_agent_learns_and_its_evaluations_are_shown(executed, facts):
    shown = re.match(r"return ([\d.]+), from (\d+) to (\d+) in 20 episodes", text(executed, "evaluate"))
    assert shown
    assert float(shown[1]) == pytest.approx(facts["score"], abs=0.06)  # it is rounded
    assert facts["score"] >= 150  # mostly 500, and 265 in the worst of 13 runs; a random agent has 22
    curve = [float(value) for value in re.findall(r"return +([\d.]+)", text(executed, "logs"))]
    assert len(curve) == 10
    assert curve[-1] == pytest.approx(facts["score"], abs=0.06)  # the same checkpoint on the same seeds
    assert curve[0] < curve[-1]


@pytest.mark.slow
def test_the_curve_is_shown_inline(executed):
    (image,) = [out.data["image/png"] for out in outputs(executed, "curve") if "image/png" in out.get("data", {})]
    png = base64.b64decode(image)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    assert width > height >= 400


@pytest.mark.slow
def test_a_transition_goes_round_the_ring(executed, facts):
    went = facts["went_round"]
    assert went.pop("reward") == 1.0
    assert went.pop("discount") == pytest.approx(0.99)
    assert went == {"observation": True, "action": True, "next_observation": True}
    assert "drawn with probability [1. 1. 1. 1.]" in text(executed, "batch")
    assert "holds 1 of 100000 items" in text(executed, "table")
    (metrics,) = outputs(executed, "learn")
    assert "'loss'" in metrics.data["text/plain"]
    old, unchanged, new = facts["values"]
    assert old == unchanged < new  # it was rewarded


@pytest.mark.slow
def test_the_hand_made_loop_learns_as_often_as_the_limiter_allows(facts):
    assert facts["learner_steps"] == facts["allowed_steps"] > 900


@pytest.mark.slow
def test_nothing_is_left_running(facts):
    assert facts["left"] == []
    with pytest.raises(ProcessLookupError):
        os.kill(facts["pid"], 0)

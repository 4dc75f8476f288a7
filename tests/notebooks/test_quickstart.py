"""The quickstart notebook is run as a reader would run it, and what it shows is looked at."""

import json
import re
import struct
import time

import nbformat
import psutil
import pytest
from opened import SETUP, outputs, picture, read, text, with_cells

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
def executed(execute) -> nbformat.NotebookNode:
    """The notebook with its outputs, and two cells of ours."""
    return execute(with_cells(read("quickstart"), BEFORE, AFTER))


@pytest.fixture(scope="module")
def facts(executed) -> dict:
    """What the last cell told."""
    return json.loads(text(executed, "after"))


def ended(pid: int) -> bool:
    """Whether a process is gone, or is one that nobody waits for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_every_cell_runs_and_only_progress_goes_to_stderr(executed):
    for cell in executed.cells:
        if cell.cell_type == "code":
            assert cell.execution_count is not None
            assert not [out for out in cell.outputs if out.output_type == "error"]
            if cell.id not in ("train", SETUP):
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
    png = picture(executed, "curve")
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
    deadline = time.monotonic() + 30
    while not ended(facts["pid"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ended(facts["pid"])

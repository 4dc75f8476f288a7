"""Programs run by Launchpad's own launchers."""

import json
from pathlib import Path

import pytest
from programs import FIELDS, rows, saved, state

_LAUNCHERS = ["local_mp", pytest.param("local_mt", marks=pytest.mark.release)]


def _line(folder, launch_type, steps):
    fields = [f"{name}={value}" for name, value in FIELDS.items()]
    return [str(Path(__file__).with_name("own_script.py")), str(folder), launch_type, str(steps), *fields]


@pytest.mark.release
@pytest.mark.parametrize("launch_type", _LAUNCHERS)
def test_a_program_with_a_node_of_ones_own_runs_by_lp_launch(launch_type, tmp_path, launch):
    code, out, err = launch(_line(tmp_path, launch_type, 1_000), tmp_path, TMPDIR=str(tmp_path)).end()
    assert code == 0, (out, err)
    run = tmp_path / "run"
    assert 1_000 <= saved(run)[-1] <= 1_020
    assert len(rows(run, "actor")) >= 19
    assert json.loads((run / "evaluation.json").read_text())["episodes"] == 2
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "watched").read_text() == "2 layers;\nit ended\n"


@pytest.mark.release
@pytest.mark.parametrize("launch_type", _LAUNCHERS)
def test_an_interrupt_of_a_program_by_lp_launch_ends_it_after_a_last_save(launch_type, tmp_path, launch):
    run = tmp_path / "run"
    line = [*_line(tmp_path, launch_type, 10**7), "--lp_termination_notice_secs=60"]
    program = launch(line, run, TMPDIR=str(tmp_path))
    watched = tmp_path / "watched"
    program.wait_for(lambda: program.steps() > 200 and len(rows(run, "learner")) > 0 and watched.exists())
    program.interrupt()
    code, out, err = program.end()
    assert code == 0, (out, err)
    counted, inserted, learned = state(run)
    assert counted == saved(run)[-1] >= rows(run, "actor")[-1]
    assert abs(inserted - counted) < 50
    assert learned > 0
    assert watched.read_text() == "2 layers;\nit ended\n"

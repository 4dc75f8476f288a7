"""Programs run by Launchpad's own launchers."""

import json
from pathlib import Path

import pytest
from programs import FIELDS, rows, saved


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", ["local_mp", "local_mt"])
def test_a_program_with_a_node_of_ones_own_runs_by_lp_launch(launch_type, tmp_path, launch):
    fields = [f"{name}={value}" for name, value in FIELDS.items()]
    script = str(Path(__file__).with_name("own_script.py"))
    code, out, err = launch([script, str(tmp_path), launch_type, *fields], tmp_path, TMPDIR=str(tmp_path)).end()
    assert code == 0, (out, err)
    run = tmp_path / "run"
    assert 1_000 <= saved(run)[-1] <= 1_020
    assert len(rows(run, "actor")) >= 19
    assert json.loads((run / "evaluation.json").read_text())["episodes"] == 2
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "watched").read_text() == "2 layers; it ended"

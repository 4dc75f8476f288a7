"""A search whose trials run on the hosts of a cluster, all of them on this machine."""

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("ray") is None or importlib.util.find_spec("optuna") is None:
    pytest.skip("needs the extras `ray` and `tune`", allow_module_level=True)

import ray_search

from acme_ext.commands.tuning.study import State, Study

pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]


def test_trials_are_lost_neither_with_the_search_nor_with_their_host(tmp_path, launch, cluster):
    study = tmp_path / "study"
    (tmp_path / "held").touch()
    cluster.do("add one")

    def starts(number):
        path = study / f"trials/{number:04d}/starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def begin():
        return launch([ray_search.__file__, str(study), cluster.address], study)

    search = begin()
    search.wait_for(lambda: starts(0) == starts(1) == 1)
    search.process.kill()
    search.end()

    search = begin()  # the runs of before end with the search that began them, and then begin again
    search.wait_for(lambda: starts(0) == starts(1) == 2)
    cluster.do("remove one")
    search.wait_for(lambda: search.out().count("its host was lost; it is resumed on another") >= 2)
    (tmp_path / "held").unlink()
    cluster.do("add two")
    code, out, err = search.end()
    assert code == 0, err
    assert starts(0) == starts(1) == 3
    assert all(out.count(f"trial {number} is resumed") >= 2 for number in (0, 1))
    trials = Study(study, ray_search.TUNED).trials
    assert [(trial.state, trial.value) for trial in trials] == [(State.COMPLETE, 7.0)] * 2


def test_what_no_host_has_is_said_and_nothing_is_written(tmp_path, launch, cluster):
    study = tmp_path / "study"
    line = ["-m", "acme_ext", "tune", "dqn", "bsuite:catch/0", "--study", str(study), "--on", "ray"]
    code, _, err = launch([*line, "--ray-address", cluster.address, "--resources", "GPU:64"], Path(study)).end()
    assert code == 2
    assert "no host of the cluster has what each run asks for: 64 GPU." in err
    assert not study.exists()

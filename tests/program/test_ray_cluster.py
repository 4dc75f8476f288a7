"""Programs on a cluster of several of Ray's hosts, all of them on this machine."""

import importlib.util
import json
import re
import signal
from pathlib import Path

import psutil
import pytest
from programs import rows, saved, state

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`"),
    pytest.mark.timeout(900),
]


@pytest.mark.release
def test_deaths_and_a_lost_host_cost_restarts_and_the_run_ends_at_its_budget(tmp_path, train, cluster):
    run = tmp_path / "run"
    cluster.do("add one")
    groups = ("replay", "coordinator", "learner", "evaluator")
    where = [word for group in groups for word in ("--resources", f"{group}=base:1")]
    where += ["--resources", "actor=field:1"]
    options = ("--on", "ray", "--ray-address", cluster.address, "--restart", "3", "--checkpoint-every", "0.5", *where)
    program = train(run, 4_000, *options)
    program.wait_for(lambda: program.steps() > 300 and bool(saved(run)))

    program.node_of_host("actor-0").kill()
    program.wait_for(lambda: program.node_of_host("actor-0") is not None)
    now = program.steps()
    program.wait_for(lambda: program.steps() > now + 300 and saved(run)[-1] > now)

    learner = program.node_of_host("learner").pid
    program.node_of_host("learner").kill()
    program.wait_for(lambda: (process := program.node_of_host("learner")) is not None and process.pid != learner)
    now = program.steps()
    program.wait_for(lambda: program.steps() > now + 300)

    cluster.do("remove one")
    cluster.do("add two")
    code, _, err = program.end()
    assert code == 0, err
    assert re.search(r"actor-0 on [\d.]+ was killed by SIGKILL and is started again\.\n", err)
    assert re.search(r"learner on [\d.]+ was killed by SIGKILL\.\n", err)
    assert "the program is started again from its last checkpoint." in err
    assert re.search(r"actor-[01] on [\d.]+ was lost, .*, and is placed anew\.\n", err)
    assert "restarts of nodes that had died: 2." in err
    assert "restarts of the whole program: 1." in err
    counted, _, _ = state(run)
    assert counted == saved(run)[-1]
    assert 4_000 <= counted <= 4_040
    logged = rows(run, "actor")
    assert logged == sorted(logged)
    assert set(rows(run, "actor", "actor")) == {0, 1}
    assert all(program.node_of_host(name) is None for name in ("actor-0", "actor-1", "learner", "replay"))


@pytest.mark.release
def test_a_job_of_ray_s_runs_in_its_own_environment_and_its_actors_have_names(tmp_path, train, cluster):
    """The variables are those that `ray job submit` gives its command."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "lab_walk.py").write_text(Path(__file__).with_name("lab_walk.py").read_text())
    job = {"working_dir": str(tmp_path / "code"), "env_vars": {"LAB_WALK_HANGS_AT": "100"}}
    given = {"RAY_ADDRESS": cluster.address, "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": job})}
    hanging = tmp_path / "hanging"
    hanging.mkdir()
    more = json.dumps({"env_vars": {"LAB_WALK_HANGS_IN": str(hanging)}})
    run = tmp_path / "run"
    cluster.do("add one")
    program = train(run, 10**7, "--on", "ray", "--runtime-env-json", more, **given)
    program.wait_for(lambda: len(list(hanging.iterdir())) == 2)
    assert {"replay", "coordinator", "learner", "evaluator", "actor-0", "actor-1"} <= set(cluster.names())
    program.process.terminate()
    code, out, err = program.end()
    assert code == 128 + signal.SIGTERM, (out, err)
    assert saved(run)


def test_a_program_that_does_not_fit_says_what_is_missing(tmp_path, train, cluster):
    address = ("--on", "ray", "--ray-address", cluster.address)
    code, out, err = train(tmp_path / "run", 100, *address, "--actors", "8").end()
    assert (code, out) == (2, "")
    assert "the program does not fit on the cluster, and nothing was started: there is too little CPU" in err
    assert "asked for are 11.1 CPU; there are 4 CPU, and of these free 4 CPU" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.release
def test_a_killed_command_leaves_nothing_on_any_host(tmp_path, train, cluster):
    cluster.do("add one")
    run = tmp_path / "run"
    program = train(run, 10**7, "--on", "ray", "--ray-address", cluster.address, "--resources", "actor=field:1")
    program.wait_for(lambda: program.steps() > 100)
    names = ("replay", "coordinator", "learner", "evaluator", "actor-0", "actor-1")
    nodes = [program.node_of_host(name) for name in names]
    above = {process for node in nodes for process in node.parents() if "host_server" in " ".join(process.cmdline())}
    assert len(above) >= 4  # on each host the fork server, and what watches it
    program.process.kill()
    program.end()
    _, alive = psutil.wait_procs([*nodes, *above], timeout=30)
    assert alive == []

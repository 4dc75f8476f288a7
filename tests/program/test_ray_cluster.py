"""Programs on a cluster of several of Ray's hosts, all of them on this machine."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from programs import rows, saved, state

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`"),
    pytest.mark.timeout(900),
]

# The cluster lives in a process of its own, since Ray takes hold of the one that it is in. It reads a line for each
# thing to do, and answers each.
_CLUSTER = """
import pathlib, sys
from ray.cluster_utils import Cluster

cluster = Cluster()
options = dict(num_gpus=0, object_store_memory=80 * 2**20)
head = cluster.add_node(num_cpus=4, resources={"base": 9}, include_dashboard=False, **options)
# Addresses of their own, and a driver that takes the head's for its own: each host writes its address to the same file.
hosts, addresses = {}, (f"127.0.0.{number}" for number in range(2, 255))
file = pathlib.Path(head.get_session_dir_path()) / "node_ip_address.json"
address_of_head = file.read_text()
print(cluster.address, flush=True)
for line in sys.stdin:
    what, name = line.split()
    if what == "add":
        address = next(addresses)
        hosts[name] = cluster.add_node(num_cpus=4, resources={"field": 9}, node_ip_address=address, **options)
        cluster.wait_for_nodes()
        file.write_text(address_of_head)
    else:
        cluster.remove_node(hosts.pop(name), allow_graceful=False)
    print("done", flush=True)
cluster.shutdown()
"""


class _Cluster:
    def __init__(self, folder: Path):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CLUSTER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "cluster.log").open("w"),
            text=True,
        )
        self.address = self._read()

    def do(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._read() == "done"

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture
def cluster(tmp_path) -> Iterator[_Cluster]:
    running = _Cluster(tmp_path)
    yield running
    running.end()


def test_deaths_and_a_lost_host_cost_restarts_and_the_run_ends_at_its_budget(tmp_path, train, cluster):
    run = tmp_path / "run"
    cluster.do("add one")
    groups = ("replay", "coordinator", "learner", "evaluator")
    where = [word for group in groups for word in ("--resources", f"{group}=base:1")]
    where += ["--resources", "actor=field:1"]
    options = ("--on", "ray", "--ray-address", cluster.address, "--restart", "3", "--checkpoint-every", "0.5", *where)
    program = train(run, 6_000, *options)
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
    assert 6_000 <= counted <= 6_040
    logged = rows(run, "actor")
    assert logged == sorted(logged)
    assert set(rows(run, "actor", "actor")) == {0, 1}
    assert all(program.node_of_host(name) is None for name in ("actor-0", "actor-1", "learner", "replay"))


def test_a_program_that_does_not_fit_says_what_is_missing(tmp_path, train, cluster):
    address = ("--on", "ray", "--ray-address", cluster.address)
    code, out, err = train(tmp_path / "run", 100, *address, "--actors", "8").end()
    assert (code, out) == (2, "")
    assert "the program does not fit on the cluster, and nothing was started: there is too little CPU" in err
    assert "asked for are 11.1 CPU; there are 4 CPU, and of these free 4 CPU" in err
    assert not (tmp_path / "run").exists()


def test_a_killed_command_leaves_nothing_on_any_host(tmp_path, train, cluster):
    cluster.do("add one")
    run = tmp_path / "run"
    program = train(run, 10**7, "--on", "ray", "--ray-address", cluster.address, "--resources", "actor=field:1")
    program.wait_for(lambda: program.steps() > 100)
    names = ("replay", "coordinator", "learner", "evaluator", "actor-0", "actor-1")
    nodes = [program.node_of_host(name) for name in names]
    above = {process for node in nodes for process in node.parents() if "nursery" in " ".join(process.cmdline())}
    assert len(above) >= 4  # on each host the nursery, and what watches it
    program.process.kill()
    program.end()
    _, alive = psutil.wait_procs([*nodes, *above], timeout=30)
    assert alive == []

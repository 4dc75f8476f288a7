"""What a node's process is given to compute on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launchpad import context

from acme_ext import launch
from acme_ext.errors import UsageError
from acme_ext.launch.engines.program import devices
from acme_ext.launch.hosts import node_process

_CODE = """
import json, os, pathlib, sys, time
import jax
import launchpad as lp
from absl import flags
from acme_ext.launch.hosts.local import LocalSupervisor
from acme_ext.launch.hosts.node_process import Options, end_program

def tell(name):
    import jax.numpy as jnp
    names = ("CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_PREALLOCATE", "OMP_NUM_THREADS", "NPROC", "XLA_FLAGS")
    (jnp.ones((64, 64)) @ jnp.ones((64, 64))).block_until_ready()
    found = {variable: os.environ.get(variable) for variable in names}
    found["platforms"] = jax.config.jax_platforms
    found["threads"] = len(os.listdir("/proc/self/task"))
    folder = pathlib.Path(sys.argv[1])
    (folder / name).write_text(json.dumps(found))
    if name == "learner":  # whose end would be a failure before the program's
        while not (folder / "actor").exists():
            time.sleep(0.01)
        end_program()

flags.FLAGS(["test"])
program = lp.Program("test")
for name in ("learner", "actor"):
    with program.group(name):
        program.add_node(lp.PyNode(tell, name))
accelerated = tuple(sys.argv[2].split(","))
devices = json.loads(sys.argv[3])
options = Options(pathlib.Path(sys.argv[1]), accelerated=accelerated, threads={"actor": 1}, devices=devices)
sys.exit(LocalSupervisor(lambda first: program, options).run())
"""


def _told(folder: Path, accelerated: str, **devices: str) -> tuple[dict, dict]:
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "", "CUDA_VISIBLE_DEVICES": "0"}
    line = [sys.executable, "-c", _CODE, str(folder), accelerated, json.dumps(devices)]
    subprocess.run(line, env=environment, check=True, timeout=120)
    learner, actor = (json.loads((folder / name).read_text()) for name in ("learner", "actor"))
    return learner, actor


def test_the_learner_sees_accelerators_and_all_threads_an_actor_neither(tmp_path):
    learner, actor = _told(tmp_path, "learner")
    assert (learner["platforms"], learner["CUDA_VISIBLE_DEVICES"]) == (None, "0")
    assert learner["XLA_PYTHON_CLIENT_PREALLOCATE"] == "true"
    assert learner["NPROC"] is None
    assert (actor["platforms"], actor["CUDA_VISIBLE_DEVICES"]) == ("cpu", "")
    assert (actor["NPROC"], actor["OMP_NUM_THREADS"]) == ("1", "1")
    assert "--xla_cpu_multi_thread_eigen=false" in actor["XLA_FLAGS"]


def test_processes_that_share_accelerators_do_not_take_the_memory_beforehand(tmp_path):
    for found in _told(tmp_path, "learner,actor"):
        assert (found["platforms"], found["CUDA_VISIBLE_DEVICES"]) == (None, "0")
        assert found["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


@pytest.mark.parametrize(("learners", "beforehand"), [("1", "true"), ("0", "false")])
def test_a_node_sees_the_devices_that_it_is_given(learners, beforehand, tmp_path):
    learner, actor = _told(tmp_path, "learner,actor", learner=learners, actor="0")
    assert (learner["platforms"], learner["CUDA_VISIBLE_DEVICES"]) == (None, learners)
    assert (actor["platforms"], actor["CUDA_VISIBLE_DEVICES"]) == (None, "0")
    assert learner["XLA_PYTHON_CLIENT_PREALLOCATE"] == actor["XLA_PYTHON_CLIENT_PREALLOCATE"] == beforehand


def _asking(**amounts: float) -> launch.Processes:
    resources = {group: {"GPU": amount} for group, amount in amounts.items()}
    groups = ("learner", "inference", "actor")
    return launch.Processes(actors=3, inference="server", accelerated=groups, resources=resources)


@pytest.mark.parametrize(
    ("amounts", "given"),
    [
        ({}, {}),
        ({"learner": 1}, {"learner": "a"}),
        ({"learner": 2, "inference": 1}, {"learner": "a,b", "inference": "c"}),
        ({"learner": 0.5, "inference": 0.5}, {"learner": "a", "inference": "a"}),
        ({"learner": 1, "actor": 0.4}, {"learner": "a", "actor-0": "b", "actor-1": "b", "actor-2": "c"}),
        ({"actor": 1 / 3}, {"actor-0": "a", "actor-1": "a", "actor-2": "a"}),
    ],
)
def test_devices_are_given_to_those_that_ask(amounts, given):
    assert devices.devices_of(_asking(**amounts), ["a", "b", "c"]) == given


def test_a_share_goes_to_the_first_device_that_has_room():
    amounts = {"learner": 0.5, "inference": 0.9, "actor": 0.1}
    given = {"learner": "a", "inference": "b", "actor-0": "a", "actor-1": "a", "actor-2": "a"}
    assert devices.devices_of(_asking(**amounts), ["a", "b", "c"]) == given


@pytest.mark.parametrize("amounts", [{"learner": 4}, {"actor": 1, "learner": 0.1}, {"actor": 0.6, "learner": 1}])
def test_more_devices_than_there_are_are_refused(amounts):
    with pytest.raises(UsageError, match="more GPUs than there are here: 3"):
        devices.devices_of(_asking(**amounts), ["a", "b", "c"])


def test_those_that_ask_for_nothing_are_not_accelerated_and_cpus_are_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 7")
    asked = {"learner": {"GPU": 1, "CPU": 3}, "actor": {"CPU": 0.5}}
    found = devices.options(launch.Processes(actors=2, inference="server", resources=asked), tmp_path)
    assert (found.accelerated, found.devices) == (("learner",), {"learner": "5"})
    assert (found.threads["learner"], found.threads["actor"]) == (3, 1)
    assert devices.options(launch.Processes(actors=2, inference="server"), tmp_path).accelerated == (
        "learner",
        "inference",
    )


@pytest.mark.parametrize(
    ("launch_type", "config", "settled"),
    [
        ("LOCAL_MULTI_PROCESSING", None, [("actor-1", "5")]),
        ("LOCAL_MULTI_THREADING", None, []),  # which share one process
        ("LOCAL_MULTI_PROCESSING", node_process.IN_ORDER, []),  # whoever forked the process has done it
    ],
)
def test_a_process_that_launchpad_s_own_launcher_starts_has_its_node_s_devices(
    launch_type, config, settled, tmp_path, monkeypatch
):
    found = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setattr(devices, "give_devices", lambda node, o: found.append((node.name, o.devices[node.name])))
    launched = context.LaunchContext()
    launched.initialize(context.LaunchType[launch_type], config)
    context.set_context(launched)
    topology = launch.Processes(actors=2, accelerated=("actor",), resources={"actor": {"GPU": 0.5}})
    assert devices.with_devices(topology, tmp_path, "actor", 1, dict)(made=True) == {"made": True}
    assert found == settled

"""What a node's process is given to compute on."""

import json
import subprocess
import sys
from pathlib import Path

_CODE = """
import json, os, pathlib, sys
import jax
import launchpad as lp
from absl import flags
from acme_ext.launch.processes.forks import Options
from acme_ext.launch.processes.supervisor import Supervisor

def tell(name):
    import jax.numpy as jnp
    names = ("CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_PREALLOCATE", "OMP_NUM_THREADS", "NPROC", "XLA_FLAGS")
    (jnp.ones((64, 64)) @ jnp.ones((64, 64))).block_until_ready()
    found = {variable: os.environ.get(variable) for variable in names}
    found["platforms"] = jax.config.jax_platforms
    found["threads"] = len(os.listdir("/proc/self/task"))
    (pathlib.Path(sys.argv[1]) / name).write_text(json.dumps(found))

flags.FLAGS(["test"])
program = lp.Program("test")
for name in ("learner", "actor"):
    with program.group(name):
        program.add_node(lp.PyNode(tell, name))
accelerated = tuple(sys.argv[2].split(","))
options = Options(pathlib.Path(sys.argv[1]), accelerated=accelerated, threads={"actor": 1})
sys.exit(Supervisor(program, (), options).run())
"""


def _told(folder: Path, accelerated: str) -> tuple[dict, dict]:
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "", "CUDA_VISIBLE_DEVICES": "0"}
    line = [sys.executable, "-c", _CODE, str(folder), accelerated]
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

"""A search on a Ray cluster whose runs learn nothing: each writes when it has begun, and ends once it may.

    python ray_search.py STUDY ADDRESS

Runs go on for as long as there is a file `held` in the study's parent.
"""

import sys
from pathlib import Path

from acme_ext.commands.tuning import spaces, study
from acme_ext.commands.tuning.study import Study, Tuned
from acme_ext.launch.hosts.interrupt import Interrupt
from acme_ext.launch.hosts.ray import commands

RUN = """
import json, pathlib, sys, time
from acme_ext.utils import system
if not system.signal_at_parents_end(int(sys.argv[1]), 15):
    sys.exit(1)
run = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
run.mkdir(exist_ok=True)
with open(run / "starts", "a") as starts:
    starts.write("begun\\n")
while (run.parents[2] / "held").exists():
    time.sleep(0.05)
(run / "config.json").write_text(json.dumps({"agent": "dqn", "environment": "gym:CartPole-v1", "run": {}}))
(run / "evaluation.json").write_text(json.dumps({"episode_return_mean": 7.0}))
"""

TUNED = Tuned(
    agent="dqn",
    environment="bsuite:catch/0",
    steps=100,
    every=0,
    num_envs=1,
    eval_episodes=None,
    settings={},
    environment_options={},
    space={"learning_rate": spaces.parse("log:1e-4:1e-2")},
    seed=100,
)


def main() -> None:
    """Searches until two trials have ended."""
    study.CHILD = RUN
    path = Path(sys.argv[1])
    # The host of the search has nothing of what runs ask for.
    with commands.joined(sys.argv[2], path, {"field": 1.0}) as cluster:
        Study(path, TUNED, lambda text: print(text, flush=True), cluster).search(2, 2, Interrupt())


if __name__ == "__main__":
    main()

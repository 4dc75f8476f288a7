"""What a user's own script may look like: an experiment's program with a node more, by Launchpad's own launcher."""

import pathlib
import sys

import lab_walk  # noqa: F401
import launchpad as lp
from absl import app

from acme_ext.builders import DQN
from acme_ext.config.assignments import replace_fields
from acme_ext.launch.engines.program.program import make
from acme_ext.launch.placement import Processes
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.schedule import Checkpoints, Evaluation


class Watcher:
    """Asks the learner for its parameters, as Acme's variable clients do, and writes down what it saw."""

    def __init__(self, folder: str, learner):
        self._folder, self._learner = pathlib.Path(folder), learner

    def run(self) -> None:
        # A call to a learner that isn't there yet is tried again later and later, here for longer than the run takes.
        while not (self._folder / "run/logs/learner.csv").exists():
            if lp.wait_for_stop(0.1):
                return
        (params,) = self._learner.get_variables(["policy"])
        with (self._folder / "watched").open("w", buffering=1) as watched:
            watched.write(f"{len(params)} layers;\n")
            lp.wait_for_stop()
            watched.write("it ended\n")


def main(arguments: list[str]) -> None:
    _, run_dir, launch_type, steps, *fields = arguments
    config = replace_fields(DQN().config, dict(field.split("=") for field in fields))
    experiment = Experiment(
        DQN(config),
        "gym:lab_walk:LabWalk-v0",
        steps=int(steps),
        evaluation=Evaluation(every=0, final_episodes=2),
        checkpoints=Checkpoints(every_s=0),
        run_dir=f"{run_dir}/run",
    )
    program = make(experiment, Processes(actors=1))
    with program.group("watcher"):
        (learner,) = program.groups["learner"]
        program.add_node(lp.PyClassNode(Watcher, run_dir, learner.create_handle()))
    lp.launch(program, launch_type=launch_type, terminal="output_to_files").wait()


if __name__ == "__main__":
    app.run(main, argv=sys.argv)

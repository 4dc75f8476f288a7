"""Makes the data that some settings of the benchmarks learn from: `python -m benchmarks.learning.recorded NAME`."""

import argparse
import shutil
import sys
from collections.abc import Sequence

from acme_ext import builders, launch
from acme_ext.commands.record import describe_recording, record_run
from acme_ext.data.format import MANIFEST, Folder
from acme_ext.errors import UsageError, nearest
from benchmarks.learning.settings import DATA, RECORDED
from benchmarks.shared import command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code: 0, or 2 for a usage error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.recorded", description=__doc__)
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the data; if missing, all are listed")
    options = parser.parse_args(arguments)
    return command.run("benchmarks.learning.recorded", lambda: _main(options.name))


def _main(name: str | None) -> int:
    if name is None:
        print("\n".join(f"{name}: {recorded}" for name, recorded in RECORDED.items()))
        return 0
    if name not in RECORDED:
        raise UsageError(f"there is no data {name!r}: {nearest(name, RECORDED)}")
    print("\n".join(describe_recording(make(name))))
    return 0


def make(name: str) -> Folder:
    """Trains the agent, and records episodes with the parameters of its best evaluation; returns the folder.

    It resumes a run that was stopped. It does nothing if the folder is complete.
    """
    recorded, out = RECORDED[name], DATA / name
    if (out / MANIFEST).is_file() and (folder := Folder(out)).steps >= recorded.recorded:
        return folder
    run_dir = out.with_name(f"{name}-run")
    experiment = launch.Experiment(
        builders.load(recorded.agent)(),
        recorded.environment,
        steps=recorded.steps,
        seed=recorded.seed,
        num_envs=recorded.num_envs,
        environment_options=recorded.environment_options,
        run_dir=str(run_dir),
    )
    launch.run(experiment)
    shutil.rmtree(out, ignore_errors=True)
    best = recorded.policy != "random"
    return record_run(run_dir, out, steps=recorded.recorded, policy=recorded.policy, num_envs=1, best=best)


if __name__ == "__main__":
    sys.exit(main())

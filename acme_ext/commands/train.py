"""The command `acme-ext train`."""

import argparse
import contextlib
import sys
from typing import Any

from acme_ext.commands import common, train_on
from acme_ext.errors import UsageError
from acme_ext.launch.runs.schedule import Checkpoints, Evaluation
from acme_ext.utils import availability


def add(commands: Any) -> None:
    """Adds the command."""
    train = commands.add_parser(
        "train",
        help="train an agent, or resume a run that was stopped",
        description="Train an agent. The same command with the same run directory resumes the run.",
        epilog="Launchpad's flags for a program follow --, as in -- --lp_termination_notice_secs=60.",
    )
    train.add_argument("agent", metavar="AGENT", help="a name from `acme-ext list`, or your own agent as MODULE:CLASS")
    train.add_argument(
        "environment",
        metavar="ENVIRONMENT",
        help="FAMILY:NAME, such as gym:CartPole-v1, or py:MODULE:FUNCTION; data:FOLDER learns only from recorded data",
    )
    common.add_count(train, "--steps", "environment steps; learner steps for data:FOLDER (%(default)s)", default=50_000)
    train.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (%(default)s)")
    common.add_count(train, "--num-envs", "environments per actor (%(default)s)", default=1)
    common.add_count(
        train,
        "--devices",
        "devices to split the learner's batch over; a compiled run also splits its environments (%(default)s)",
        default=1,
    )
    common.add_set(train, "a setting of the agent, such as learning_rate=1e-3, replay.n_step=5 or torso=MODULE:NAME")
    train.add_argument(
        "--intrinsic",
        metavar="BONUS",
        help="an exploration bonus, such as rnd, for agents without memory; short for --set intrinsic=BONUS",
    )
    common.add_env_set(train)
    train.add_argument(
        "--eval-every",
        type=int,
        metavar="N",
        help=f"steps between evaluations; 0: evaluate only at the end ({Evaluation.every})",
    )
    common.add_count(train, "--eval-episodes", f"episodes of the final evaluation ({Evaluation.final_episodes})")
    train.add_argument(
        "--checkpoint-every",
        type=float,
        metavar="S",
        help=f"seconds between checkpoints; 0: save only at the end ({Checkpoints.every_s:g})",
    )
    train.add_argument(
        "--replay-every",
        type=float,
        metavar="S",
        help="minimum seconds between checkpoints that write the replay's contents again; others reuse the last ones "
        f"({Checkpoints.replay_every_s:g})",
    )
    common.add_count(
        train,
        "--checkpoint-steps",
        "save every N steps so that a resumed run goes on exactly as if it had not been stopped; all environments "
        "begin new episodes there, and a run in one process needs --table embedded",
    )
    train.add_argument(
        "--exact",
        action="store_true",
        help="resume from the last checkpoint of --checkpoint-steps instead of the newest one",
    )
    train.add_argument(
        "--table",
        choices=("auto", "embedded", "reverb"),
        default="auto",
        help="where the replay's items are stored: in Reverb, or in a table of this package, which needs no Reverb and "
        "with which a run in one process is determined by its seed (auto: reverb if it is installed)",
    )
    train.add_argument(
        "--run-dir", metavar="DIR", help="the run directory (runs/AGENT-ENVIRONMENT-sSEED, with changed settings)"
    )
    train.add_argument(
        "--fresh", action="store_true", help="start from the beginning: delete the files of an earlier run"
    )
    train_on.add_options(train)
    train.add_argument(
        "--profile",
        action="store_true",
        default=None,
        help="measure how a run in one process spends its time; writes profile.txt and trace.json to the run directory",
    )
    train.add_argument(
        "--record",
        metavar="DIR",
        help="record all complete training episodes to a folder; a program on several hosts needs a folder that they "
        "share",
    )
    train.add_argument(
        "--demos",
        metavar="DIR",
        help="also learn from the recorded data in DIR; with DIR?best=SHARE, only from its best episodes",
    )
    common.add_count(
        train, "--snapshot-every", "export the policy every N steps to snapshots/STEP in the run directory"
    )
    train.add_argument("--skip-damaged", action="store_true", help="skip damaged parts of recorded data")
    train.add_argument("--quiet", action="store_true", help="show no progress line")
    train.set_defaults(
        command=_train, flags=(), grace_s=None, if_stopped="; nothing is lost, and the same command starts again"
    )


def experiment_from(options: argparse.Namespace) -> Any:
    """Returns the `Experiment` that the options of `train` describe; raises UsageError for invalid options."""
    from acme_ext import builders, envs
    from acme_ext.config.assignments import configure_builder, split_assignments
    from acme_ext.config.types import parse_literal

    environment_options = common.environment_options(options)
    fields = split_assignments(options.set)
    if (bonus := options.intrinsic) is not None and fields.setdefault("intrinsic", bonus) != bonus:
        raise UsageError(f"--intrinsic {bonus} contradicts --set intrinsic={fields['intrinsic']}: give only one.")
    if options.demos is None and parse_literal(fields.get("replay.demo_ratio", "0")) != 0:
        raise UsageError("replay.demo_ratio is the share of demonstrations: give some (--demos DIR).")
    builders.check_agent_name(options.agent)
    environment, data = options.environment, None
    if environment.startswith("data:"):
        from acme_ext.data.format import Folder
        from acme_ext.launch.runs.identity import restore_environment, split_data

        data = environment.removeprefix("data:")
        manifest = Folder(split_data(data)[0]).manifest
        environment = restore_environment(manifest["environment"])
        environment_options = manifest["environment_options"] | environment_options
    envs.check_environment(environment, **environment_options)

    builder = builders.make(options.agent).for_environment(environment)
    builder = configure_builder(builder, fields)

    from acme_ext.launch.runs.experiment import Experiment

    def given(**values: Any) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value is not None}

    return Experiment(
        builder,
        environment,
        steps=options.steps,
        seed=options.seed,
        num_envs=options.num_envs,
        num_devices=options.devices,
        environment_options=environment_options,
        evaluation=Evaluation(**given(every=options.eval_every, final_episodes=options.eval_episodes)),
        checkpoints=Checkpoints(
            **given(
                every_s=options.checkpoint_every, replay_every_s=options.replay_every, steps=options.checkpoint_steps
            )
        ),
        run_dir=options.run_dir,
        data=data,
        demos=options.demos,
        table=options.table,
    )


def _uses_reverb(options: argparse.Namespace) -> bool:
    """Whether a run imports Reverb."""
    acts = options.on != "compiled" and not options.environment.startswith("data:")
    return acts and options.table != "embedded" and availability.has_reverb()


def parse(*arguments: str) -> argparse.Namespace:
    """Returns the options of the command `acme-ext train` with these arguments."""
    parser = argparse.ArgumentParser(prog="acme-ext")
    add(parser.add_subparsers())
    return parser.parse_args(["train", *arguments])


def _train(options: argparse.Namespace) -> int:
    train_on.take_flags(options)
    on = train_on.placement_of(options)
    program = train_on.is_program(options)
    if not options.quiet:
        what = "JAX, TensorFlow and Reverb" if _uses_reverb(options) else "JAX"
        print(f"acme-ext: loading {what} ...", file=sys.stderr, flush=True)
    with train_on.started_ahead(options) if program else contextlib.nullcontext():
        from acme_ext.launch.runner import run

        result = run(
            experiment_from(options),
            on,
            fresh=options.fresh,
            quiet=options.quiet,
            record=options.record,
            snapshot_every=options.snapshot_every,
            skip_damaged=options.skip_damaged,
            exact=options.exact,
        )
    if result.stopped_by is not None:
        steps = result.environment_steps or result.learner_steps
        print(common.say_stopped(steps, options, result.run_dir))
        return 128 + result.stopped_by
    if len(result.seeds) > 1:
        train_on.say_seeds(result)
        return 0
    assert result.score is not None
    of_environment = f"{result.environment_steps:,} of the environment, " if result.environment_steps else ""
    print(f"steps       {of_environment}{result.learner_steps:,} of the learner")
    print(f"evaluation  {common.say_score(result.score)}")
    print(f"curve       {result.curve}")
    print(f"everything  {result.run_dir}")
    return 0

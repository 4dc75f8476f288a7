"""The command line, `acme-ext`. What is heavy is imported by the command that needs it."""

import argparse
import importlib.util
import os
import pathlib
import signal
import sys
from collections.abc import Sequence
from typing import Any

import acme_ext
from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import interrupt
from acme_ext.utils import install, worlds


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code.

    0: done; 1: it failed; 2: it was asked for something that can't be; 128 + n: signal n stopped it, after a last save.
    """
    options = _parser().parse_args(arguments)
    # TensorFlow is only Reverb's means of transport here: its notes on CPU features and CUDA would bury ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if arguments is None and (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)  # as `python -m` has it, so that modules of the user's are found
    try:
        with interrupt.at_once(f"acme-ext: stopped{options.if_stopped}."):
            return options.command(options)
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="acme-ext", description="Reinforcement-learning agents on Acme, Reverb, Launchpad and JAX."
    )
    parser.add_argument("--version", action="version", version=f"acme-ext {acme_ext.__version__}")
    parser.set_defaults(if_stopped="")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    train = commands.add_parser(
        "train",
        help="train an agent, or go on with a run that was stopped",
        description="Train an agent. The same command on the same run directory goes on where it was.",
    )
    train.add_argument("agent", metavar="AGENT", help="see `acme-ext list`; your own as MODULE:CLASS")
    train.add_argument(
        "environment",
        metavar="ENVIRONMENT",
        help="FAMILY:NAME, as gym:CartPole-v1, or py:MODULE:FUNCTION; data:FOLDER learns from recorded data alone",
    )
    train.add_argument(
        "--steps",
        type=_count,
        default=50_000,
        metavar="N",
        help="environment steps, or with recorded data those of the learner (%(default)s)",
    )
    train.add_argument("--seed", type=int, default=0, metavar="N", help="of all that can be seeded (%(default)s)")
    train.add_argument("--num-envs", type=_count, default=1, metavar="N", help="stepped together (%(default)s)")
    train.add_argument(
        "--devices",
        type=_count,
        default=1,
        metavar="N",
        help="that the learner's batch, and a compiled run's environments, are split over (%(default)s)",
    )
    train.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a setting of the agent, as learning_rate=1e-3, replay.n_step=5 or torso=MODULE:NAME",
    )
    train.add_argument(
        "--intrinsic",
        metavar="BONUS",
        help="a bonus for what is new around any agent without memory, as rnd: short for --set intrinsic=BONUS",
    )
    train.add_argument("--env-set", action="append", default=[], metavar="OPTION=VALUE", help="an environment's option")
    train.add_argument(
        "--eval-every", type=int, metavar="N", help="environment steps between evaluations; 0: at the end"
    )
    train.add_argument("--eval-episodes", type=_count, metavar="N", help="of the evaluation at the end")
    train.add_argument("--checkpoint-every", type=float, metavar="S", help="seconds between checkpoints; 0: at the end")
    train.add_argument(
        "--replay-every",
        type=float,
        metavar="S",
        help="least seconds between times that a checkpoint has the replay written anew",
    )
    train.add_argument("--run-dir", metavar="DIR", help="(runs/AGENT-ENVIRONMENT-sSEED, with what is set)")
    train.add_argument(
        "--fresh", action="store_true", help="start anew: delete what an earlier run left in the directory"
    )
    train.add_argument("--actors", type=_count, metavar="N", help="run as a program with so many actors")
    train.add_argument(
        "--on",
        choices=("processes", "threads", "ray", "compiled"),
        help="where the nodes of a program run (processes), implies --actors 1; or compiled: environments written "
        "in JAX, acting, replay and learning as one compiled program",
    )
    train.add_argument(
        "--seeds", type=_count, metavar="N", help="of a compiled run: so many seeds at once, from --seed on"
    )
    train.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="of a Ray cluster that this machine is a part of, or auto; without it a Ray is started for the run",
    )
    train.add_argument(
        "--ray-wait", type=float, metavar="S", help="seconds that the cluster has to make room for all nodes"
    )
    train.add_argument(
        "--resources",
        action="append",
        default=[],
        metavar="NODES=NAME:N[,...]",
        help="what each of a program's nodes of a kind asks of Ray, as learner=GPU:1,CPU:4",
    )
    train.add_argument("--replay-shards", type=_count, default=1, metavar="N", help="of a program (%(default)s)")
    train.add_argument("--evaluators", type=_count, default=1, metavar="N", help="of a program (%(default)s)")
    train.add_argument(
        "--accelerated",
        default="learner,inference",
        metavar="NODES",
        help="which of a program's nodes see accelerators, of learner,inference,evaluator,actor (%(default)s)",
    )
    train.add_argument(
        "--inference",
        choices=("actor", "server"),
        default="actor",
        help="who applies the policy in a program: each actor, or a server for all of them (%(default)s)",
    )
    train.add_argument(
        "--experience",
        choices=("actor", "server"),
        default="actor",
        help="who writes the experience in a program with an inference server (%(default)s)",
    )
    train.add_argument(
        "--restart",
        type=int,
        default=0,
        metavar="N",
        help="times in an hour that a program's actors, evaluators and inference server are started again",
    )
    train.add_argument(
        "--open-ports", action="store_true", help="let the network reach a program's ports: whoever does can run code"
    )
    train.add_argument(
        "--profile",
        action="store_true",
        help="say where the time of a run in one process goes; writes profile.txt and trace.json to its directory",
    )
    train.add_argument("--record", metavar="DIR", help="record all whole episodes to a folder, beside the training")
    train.add_argument(
        "--demos",
        metavar="DIR",
        help="learn from recorded data too, which is DIR's, or of DIR?best=SHARE the best of it",
    )
    train.add_argument(
        "--snapshot-every",
        type=_count,
        metavar="N",
        help="export the policy every N environment steps, to the run directory's snapshots/STEP",
    )
    train.add_argument("--skip-damaged", action="store_true", help="leave out damaged parts of recorded data")
    train.add_argument("--quiet", action="store_true", help="no progress line")
    train.set_defaults(command=_train, if_stopped="; nothing is lost, and the same command starts again")

    evaluate = commands.add_parser(
        "evaluate", help="evaluate the agent of a run", description="Evaluate a run's agent."
    )
    evaluate.add_argument("run", metavar="RUN", help="a run directory")
    evaluate.add_argument("--episodes", type=_count, metavar="N", help="(those of the run's own last evaluation)")
    evaluate.add_argument(
        "--env-set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="an environment's option in place of the run's, as opponent=mcts:100",
    )
    evaluate.add_argument(
        "--every-reply",
        action="store_true",
        help="of a board game: play against all that can be replied, on both sides, and count the outcomes",
    )
    evaluate.add_argument(
        "--best",
        action="store_true",
        help="the parameters of the run's best evaluation, on other seeds than those that chose them",
    )
    evaluate.add_argument("--video", metavar="FILE", help="write a film of some more episodes, .mp4 or .gif")
    evaluate.add_argument("--video-episodes", type=_count, default=3, metavar="N", help="of the film (%(default)s)")
    evaluate.set_defaults(command=_evaluate)

    export = commands.add_parser(
        "export",
        help="write the policy of a run for use elsewhere",
        description="Write a run's evaluation policy to a folder: for NumPy alone, as jax.export, and for ONNX.",
    )
    export.add_argument("run", metavar="RUN", help="a run directory")
    export.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder")
    export.add_argument("--onnx", action="store_true", help="write policy.onnx too")
    export.set_defaults(command=_export)

    play = commands.add_parser(
        "play", help="play a board game against the agent of a run", description="Play against a run's agent."
    )
    play.add_argument("run", metavar="RUN", help="a run directory")
    play.add_argument("--second", action="store_true", help="let the agent begin")
    play.set_defaults(command=_play)

    tournament = commands.add_parser(
        "tournament",
        help="let the agents of runs play a board game against each other",
        description="A round robin, both sides in turn: results, Elo ratings with 95%% intervals, and a chart.",
    )
    tournament.add_argument(
        "players", nargs="+", metavar="PLAYER", help="run directories, random, mcts:N, minimax or py:MODULE:FUNCTION"
    )
    tournament.add_argument("--games", type=_count, default=40, metavar="N", help="of each pair (%(default)s)")
    tournament.add_argument(
        "--opening-moves", type=int, default=2, metavar="N", help="drawn at random, so that games differ (%(default)s)"
    )
    tournament.add_argument("--seed", type=int, default=0, metavar="N", help="(%(default)s)")
    tournament.add_argument("-o", "--output", default="tournament.png", metavar="FILE", help="(%(default)s)")
    tournament.set_defaults(command=_tournament)
    record = commands.add_parser(
        "record",
        help="record what the agent of a run does",
        description="Record what a run's agent does, in whole episodes; an existing folder is added to.",
    )
    record.add_argument("run", metavar="RUN", help="a run directory")
    record.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder of the data")
    record.add_argument("--steps", type=_count, default=50_000, metavar="N", help="at least (%(default)s)")
    record.add_argument(
        "--policy",
        choices=("evaluation", "training", "random"),
        default="evaluation",
        help="how it acts: as in evaluation, with its exploration, or at random (%(default)s)",
    )
    record.add_argument("--num-envs", type=_count, default=8, metavar="N", help="stepped together (%(default)s)")
    record.add_argument("--seed", type=int, default=0, metavar="N", help="another gives other data (%(default)s)")
    record.set_defaults(command=_record)

    data = commands.add_parser(
        "data",
        help="check recorded data and say what it holds",
        description="Check recorded data and describe it, or with --to write it in another format.",
    )
    data.add_argument(
        "source", metavar="DATA", help="a folder that --record or `record` has made; with --to minari:NAME or d4rl:FILE"
    )
    data.add_argument("--to", metavar="DATA", help="minari:NAME or d4rl:FILE.hdf5, or from these a folder")
    data.add_argument("--environment", metavar="ENVIRONMENT", help="that data of minari: or d4rl: is of")
    data.add_argument("--env-set", action="append", default=[], metavar="OPTION=VALUE", help="an environment's option")
    data.set_defaults(command=_data)

    plot = commands.add_parser(
        "plot",
        help="plot the learning curves of runs",
        description="Plot learning curves; runs that differ in their seed alone become one line with a band.",
    )
    plot.add_argument("runs", nargs="+", metavar="RUN", help="run directories, or folders with such in them")
    plot.add_argument("-o", "--output", default="curves.png", metavar="FILE", help="(%(default)s)")
    plot.add_argument(
        "--x",
        metavar="COLUMN",
        help="environment_steps, learner_steps or wall_time_s (the first; the second if a run has no environment)",
    )
    plot.add_argument(
        "--aggregate", choices=("iqm", "mean"), default="iqm", help="of seeds: the interquartile mean, or the mean"
    )
    plot.set_defaults(command=_plot)

    watch = commands.add_parser(
        "watch",
        help="show how a run is doing",
        description="Show a run's progress, speed, replay and curve from its files; anew every second while it runs.",
    )
    watch.add_argument("run", metavar="RUN", help="a run directory, also of a run on another host that shares the disk")
    watch.add_argument("--once", action="store_true", help="print it once, as where the output is no terminal")
    watch.set_defaults(command=_watch)

    report = commands.add_parser(
        "report",
        help="write a page about runs",
        description="Write one HTML file about runs: scores, curves, what differs, configs, versions and films.",
    )
    report.add_argument("runs", nargs="+", metavar="RUN", help="run directories, or folders with such in them")
    report.add_argument("-o", "--output", default="report.html", metavar="FILE", help="(%(default)s)")
    report.set_defaults(command=_report)

    _add_tune(commands)
    commands.add_parser("list", help="agents, and environments by family").set_defaults(command=_list)
    commands.add_parser("doctor", help="check this installation, and say how to mend it").set_defaults(command=_doctor)
    return parser


def _add_tune(commands: Any) -> None:
    tune = commands.add_parser(
        "tune",
        help="search for an agent's best settings",
        description="Search a space of settings by trials, each a run of its own; trials that do worse than others did "
        "are ended early. The best are trained again on other seeds. The same command goes on with a study, also when "
        "another process works on it.",
    )
    tune.add_argument("agent", metavar="AGENT", help="as of `acme-ext train`")
    tune.add_argument("environment", metavar="ENVIRONMENT", help="likewise; data:FOLDER too")
    tune.add_argument("--trials", type=_count, default=30, metavar="N", help="of the study in all (%(default)s)")
    tune.add_argument("--jobs", type=_count, default=1, metavar="N", help="trials at a time (%(default)s)")
    tune.add_argument("--steps", type=_count, default=50_000, metavar="N", help="of each run (%(default)s)")
    tune.add_argument(
        "--space",
        action="append",
        default=[],
        metavar="NAME=RANGE",
        help="float:LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, logint:LOW:HIGH, choice:A:B:..., or fixed to leave the field "
        "alone; in place of the agent's own range of it, or beside them",
    )
    tune.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a setting of all trials")
    tune.add_argument("--env-set", action="append", default=[], metavar="OPTION=VALUE", help="an environment's option")
    tune.add_argument("--num-envs", type=_count, default=1, metavar="N", help="stepped together (%(default)s)")
    tune.add_argument("--eval-every", type=int, metavar="N", help="steps between evaluations (a tenth of the steps)")
    tune.add_argument("--eval-episodes", type=_count, metavar="N", help="of the evaluation at the end")
    tune.add_argument(
        "--seed", type=int, default=100, metavar="N", help="of the first trial; the others' follow (%(default)s)"
    )
    tune.add_argument("--best", type=_count, default=3, metavar="N", help="settings trained again (%(default)s)")
    tune.add_argument("--seeds", type=_count, default=5, metavar="N", help="that they are trained on (%(default)s)")
    tune.add_argument(
        "--beside",
        nargs="*",
        choices=("defaults", "middle"),
        default=["defaults"],
        help="trained beside the best: the agent's defaults, the middle of the space (defaults)",
    )
    tune.add_argument("--study", metavar="DIR", help="(runs/tune-AGENT-ENVIRONMENT)")
    tune.add_argument("--quiet", action="store_true", help="print the results alone")
    tune.set_defaults(command=_tune, if_stopped="; nothing is lost, and the same command goes on")


def _count(text: str) -> int:
    try:
        value = int(text.replace("_", ""))
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return value


def experiment_from(options: argparse.Namespace) -> Any:
    """Returns the `Experiment` that the options of `train` describe; raises UsageError before anything heavy is
    imported.
    """
    from acme_ext import builders, envs
    from acme_ext.launch.runs import settings

    environment_options = {name: settings.literal(value) for name, value in settings.split(options.env_set).items()}
    fields = settings.split(options.set)
    if (bonus := options.intrinsic) is not None and fields.setdefault("intrinsic", bonus) != bonus:
        raise UsageError(f"--intrinsic {bonus} and --set intrinsic={fields['intrinsic']} are two: give one.")
    builders.check(options.agent)
    environment, data = options.environment, None
    if environment.startswith("data:"):
        from acme_ext.data.format import Folder
        from acme_ext.launch.runs.experiment import split_data

        data = environment.removeprefix("data:")
        manifest = Folder(split_data(data)[0]).manifest
        environment, environment_options = (
            manifest["environment"],
            manifest["environment_options"] | environment_options,
        )
    envs.check(environment, **environment_options)

    builder = builders.make(options.agent).for_environment(environment)
    builder = settings.configure(builder, fields)

    from acme_ext.launch.runs.experiment import Checkpoints, Evaluation, Experiment

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
        checkpoints=Checkpoints(**given(every_s=options.checkpoint_every, replay_every_s=options.replay_every)),
        run_dir=options.run_dir,
        data=data,
        demos=options.demos,
    )


def _train(options: argparse.Namespace) -> int:
    if options.on == "compiled":
        return _train_compiled(options)
    if options.seeds is not None:
        raise UsageError("--seeds is of a compiled run: add --on compiled, or run one seed after the other (--seed).")
    for_ray = options.ray_address is not None or options.ray_wait is not None or options.resources
    program = bool(options.actors or options.on or for_ray)
    if program and options.profile:
        raise UsageError("--profile is of a run in one process: leave out --actors and what else makes a program.")
    if not options.quiet:
        print("acme-ext: loading JAX, TensorFlow and Reverb ...", file=sys.stderr, flush=True)
    experiment = experiment_from(options)
    alone = {"--record": options.record, "--snapshot-every": options.snapshot_every}
    if program and (options.skip_damaged or any(alone.values())):
        what = next((name for name, value in alone.items() if value), "--skip-damaged")
        raise UsageError(f"{what} is for a single process: leave --actors and --on away.")
    if program:
        result = _run_program(experiment, options)
    else:
        from acme_ext.launch.runners import local

        result = local.run(
            experiment,
            fresh=options.fresh,
            quiet=options.quiet,
            profile=options.profile,
            record=options.record,
            snapshot_every=options.snapshot_every,
            skip_damaged=options.skip_damaged,
        )
    if result.stopped_by is not None:
        steps = result.environment_steps or result.learner_steps
        print(f"stopped at step {steps:,}; the same command goes on. {result.run_dir}")
        return 128 + result.stopped_by
    assert result.score is not None
    of_environment = f"{result.environment_steps:,} of the environment, " if result.environment_steps else ""
    print(f"steps       {of_environment}{result.learner_steps:,} of the learner")
    print(f"evaluation  {_say_score(result.score)}")
    print(f"curve       {result.curve}")
    print(f"everything  {result.run_dir}")
    return 0


_NOT_COMPILED = (
    *("actors", "replay_shards", "evaluators", "accelerated", "inference", "experience", "restart", "open_ports"),
    *("ray_address", "ray_wait", "resources", "record", "profile", "skip_damaged", "demos", "snapshot_every"),
)
"""Options that mean nothing in a compiled run."""


def _train_compiled(options: argparse.Namespace) -> int:
    usual = _parser().parse_args(["train", options.agent, options.environment])
    for name in _NOT_COMPILED:
        if getattr(options, name) != getattr(usual, name):
            raise UsageError(
                f"--{name.replace('_', '-')} and --on compiled exclude each other: a compiled run is one program "
                "on the device, without nodes and without a replay outside; leave one of them away."
            )
    if not options.quiet:
        print("acme-ext: loading JAX ...", file=sys.stderr, flush=True)
    experiment = experiment_from(options)
    from acme_ext.launch.compiled import runner

    results = runner.run(experiment, seeds=options.seeds or 1, fresh=options.fresh, quiet=options.quiet)
    first = results[0]
    if first.stopped_by is not None:
        print(f"stopped at step {first.environment_steps:,}; the same command goes on. {first.run_dir}")
        return 128 + first.stopped_by
    for result in results:
        assert result.score is not None
        print(f"evaluation  {_say_score(result.score)}  {result.run_dir}")
    if len(results) == 1:
        print(f"steps       {first.environment_steps:,} of the environment, {first.learner_steps:,} of the learner")
        print(f"curve       {first.curve}")
        return 0
    means = [float(result.score.returns.mean()) for result in results if result.score is not None]
    print(f"seeds       {len(means)}: mean {sum(means) / len(means):.4g}, least {min(means):.4g}")
    print(f"curve       {first.run_dir.parent / 'curve.png'}")
    return 0


def _run_program(experiment: Any, options: argparse.Namespace) -> Any:
    worlds.need_reverb("a program")
    from acme_ext.launch.runners import distributed
    from acme_ext.launch.runners.program import Topology
    from acme_ext.launch.runs import settings

    accelerated = tuple(name.strip() for name in options.accelerated.split(",") if name.strip())
    return distributed.run_program(
        experiment,
        Topology(
            options.actors or 1,
            options.replay_shards,
            options.evaluators,
            accelerated,
            options.inference,
            options.experience,
            settings.amounts(options.resources),
        ),
        fresh=options.fresh,
        quiet=options.quiet,
        on=options.on or "processes",
        restarts=options.restart,
        private=not options.open_ports,
        ray_address=options.ray_address,
        ray_wait_s=options.ray_wait,
    )


def _evaluate(options: argparse.Namespace) -> int:
    from acme_ext.envs import pictures
    from acme_ext.launch.runs import settings
    from acme_ext.launch.runs.trained import load
    from acme_ext.utils import films

    if options.every_reply:
        others = {"--video": options.video, "--episodes": options.episodes, "--env-set": options.env_set}
        others |= {"--best": options.best}
        if given := [name for name, value in others.items() if value]:
            raise UsageError(f"--every-reply plays all games that there can be: leave {given[0]} away.")
        from acme_ext.commands import players

        print(players.describe(players.against_every_reply(players.RunPlayer(options.run))))
        return 0
    if options.video:
        films.check(pathlib.Path(options.video))
        pictures.prepare()
    given = {name: settings.literal(value) for name, value in settings.split(options.env_set).items()}
    run = load(options.run, environment_options=given, best=options.best)
    if options.video:
        print(f"film        {run.film(options.video, options.video_episodes)}", flush=True)
    print(f"evaluation  {_say_score(run.evaluate(options.episodes))}")
    return 0


def _export(options: argparse.Namespace) -> int:
    from acme_ext.launch.exporting.export import export_run

    print(export_run(options.run, options.output, onnx=options.onnx))
    return 0


def _play(options: argparse.Namespace) -> int:
    from acme_ext.commands import play, players

    play.play(players.RunPlayer(options.run), person_begins=not options.second)
    return 0


def _tournament(options: argparse.Namespace) -> int:
    from acme_ext.commands import tournament

    held = tournament.hold(options.players, options.games, options.opening_moves, options.seed)
    print("\n".join(held.table()))
    print(tournament.draw(held, options.output))
    return 0


def _say_score(score: Any) -> str:
    row = score.row()
    return (
        f"return {row['episode_return_mean']:.4g} (std {row['episode_return_std']:.3g}, "
        f"{row['episode_return_min']:.4g} to {row['episode_return_max']:.4g}) over {row['episodes']} episodes"
    )


def _record(options: argparse.Namespace) -> int:
    from acme_ext.commands.record import record_run

    folder = record_run(
        options.run,
        options.output,
        steps=options.steps,
        policy=options.policy,
        num_envs=options.num_envs,
        seed=options.seed,
    )
    returns = folder.returns
    print(f"{folder.path}: {folder.steps:,} steps in {len(returns):,} episodes, return {returns.mean():.4g} on average")
    return 0


def _data(options: argparse.Namespace) -> int:
    from acme_ext.commands import exchange
    from acme_ext.commands.record import describe
    from acme_ext.data.format import Folder
    from acme_ext.launch.runs import settings

    if options.to is not None:
        given = {name: settings.literal(value) for name, value in settings.split(options.env_set).items()}
        print(exchange.convert(options.source, options.to, options.environment, given))
        return 0
    if options.environment or options.env_set:
        raise UsageError("--environment and --env-set are for --to, of data that doesn't say its own.")
    print("\n".join(describe(Folder(options.source))))
    return 0


def _plot(options: argparse.Namespace) -> int:
    from acme_ext.utils import plots

    print(plots.learning_curves(plots.group_runs(options.runs), options.output, options.x, options.aggregate))
    return 0


def _watch(options: argparse.Namespace) -> int:
    from acme_ext.commands.watch import watch

    watch(options.run, once=options.once)
    return 0


def _report(options: argparse.Namespace) -> int:
    from acme_ext.commands import report

    print(report.write_report(options.runs, options.output))
    return 0


def _tune(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("optuna") is None:
        raise UsageError(f"a search needs optuna, not installed here: {install.command('tune')}")
    run = ["train", options.agent, options.environment, "--steps", str(options.steps), "--num-envs"]
    run += [str(options.num_envs), *(x for text in options.set for x in ("--set", text))]
    run += [x for text in options.env_set for x in ("--env-set", text)]
    experiment = experiment_from(_parser().parse_args(run))
    from acme_ext.commands.tuning import tune

    return tune.tune(tune.tuned_by(options, experiment), options)


def _list(options: argparse.Namespace) -> int:
    from acme_ext import builders, envs

    print("Agents")
    for name, (_, summary) in builders.AGENTS.items():
        print(f"  {name:<10} {summary}")
    for name, value in builders.installed().items():
        print(f"  {name:<10} {value}")
    print("\nEnvironments")
    for family in envs.families():
        print(f"  {family.pattern:<24} {family.summary}  (e.g. {family.example})")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from acme_ext.commands.doctor import run_doctor

    return run_doctor(print)


if __name__ == "__main__":
    sys.exit(main())

"""The command `acme-ext evaluate`."""

import argparse
import pathlib
from typing import Any

from acme_ext.commands import common
from acme_ext.errors import UsageError


def add(commands: Any) -> None:
    """Adds the command."""
    evaluate = commands.add_parser(
        "evaluate", help="evaluate the agent of a run", description="Evaluate a run's agent."
    )
    evaluate.add_argument("run", metavar="RUN", help="a run directory, or one of its checkpoints")
    common.add_count(evaluate, "--episodes", "(as in the run's final evaluation)")
    common.add_set(evaluate, common.ACTING)
    common.add_env_set(
        evaluate, "replace an option of the run's environment, such as opponent=mcts:100 or opponent=RUN"
    )
    evaluate.add_argument(
        "--explore", action="store_true", help="act as in training: sample the actions, or add the exploration's noise"
    )
    evaluate.add_argument(
        "--every-reply",
        action="store_true",
        help="for board games: play against all possible moves of the opponent, on both sides, and count the outcomes",
    )
    evaluate.add_argument(
        "--best",
        action="store_true",
        help="evaluate the parameters of the run's best evaluation, with other seeds than that evaluation",
    )
    evaluate.add_argument("--video", metavar="FILE", help="also record a video of additional episodes, .mp4 or .gif")
    common.add_count(evaluate, "--video-episodes", "episodes in the video (3)")
    evaluate.set_defaults(command=_evaluate)


def _evaluate(options: argparse.Namespace) -> int:
    from acme_ext.config.assignments import split_assignments
    from acme_ext.envs import pictures
    from acme_ext.launch.runs.trained import load
    from acme_ext.utils import videos

    if options.every_reply:
        others = {"--video": options.video, "--episodes": options.episodes, "--env-set": options.env_set}
        others |= {"--video-episodes": options.video_episodes, "--set": options.set, "--best": options.best}
        others |= {"--explore": options.explore}
        if given := [name for name, value in others.items() if value]:
            raise UsageError(f"--every-reply plays all possible games: it can't be used with {given[0]}.")
        from acme_ext.commands import players
        from acme_ext.launch.runs.players import RunPlayer

        player = RunPlayer(options.run)
        print(players.describe_replies(players.against_every_reply(player), player.game))
        return 0
    if options.video_episodes and not options.video:
        raise UsageError("--video-episodes requires --video FILE.")
    if options.video:
        videos.check_video_path(pathlib.Path(options.video))
        pictures.prepare()
    run = load(
        options.run,
        environment_options=common.environment_options(options),
        config=split_assignments(options.set),
        best=options.best,
    )
    if options.video:
        video = run.video(options.video, options.video_episodes or 3, explore=options.explore)
        print(f"video       {video}", flush=True)
    print(f"evaluation  {common.say_score(run.evaluate(options.episodes, explore=options.explore))}")
    return 0

"""The command line, in this process."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import acme_ext
from acme_ext.agents.dqn.config import ATARI
from acme_ext.builders import DQN
from acme_ext.commands import cli, common, train
from acme_ext.errors import UsageError
from acme_ext.launch import Experiment
from acme_ext.launch.runs.evaluation import Score
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.utils.rundir import RunDirectory

_CARTPOLE = ["train", "dqn", "gym:CartPole-v1"]
_HEAVY = {"jax", "tensorflow", "reverb", "launchpad", "acme", "numpy", "haiku", "matplotlib", "gymnasium", "dm_env"}
_LIGHT_LINES = """
import sys
from acme_ext.commands import cli
commands = ("train", "evaluate", "plot", "list", "doctor", "tune", "watch", "report")
for arguments in (["--help"], *([c, "--help"] for c in commands), ["list"]):
    try:
        cli.main(arguments)
    except SystemExit as end:
        assert end.code == 0
print(sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1:])))
"""


def test_help_and_list_import_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", _LIGHT_LINES, *_HEAVY], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "[]"
    assert sum(line.startswith("usage: acme-ext") for line in lines) == 9


def test_list_names_every_agent_and_family(capsys):
    assert cli.main(["list"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^  dqn +double DQN", told, re.MULTILINE)
    for example in ("gym:CartPole-v1", "atari:Pong", "dmc:cartpole/swingup", "bsuite:catch/0", "minatar:breakout"):
        assert f"(e.g. {example})" in told


# Bad input: one sentence, exit code 2, and nothing written.
_BAD = [
    (["train", "dqn", "gym:CartPole-v1", "--ray-wait", "9"], "--ray-wait is only for programs on Ray: add --on ray."),
    (["train", "dqn", "gym:CartPole-v1", "--resources", "learner=far:2"], "learner asks for far: only CPU and GPU can"),
    (["train", "dqn", "gym:CartPole-v1", "--resources", "learner=GPU:99"], "more GPUs than there are here"),
    (["train", "dqn", "gym:CartPole-v1", "--on", "threads", "--resources", "learner=CPU:2"], "threads share what"),
    (["train", "dqn", "gym:CartPole-v1", "--on", "threads", "--restart", "2"], "--restart can't be used with --on"),
    (["train", "dqm", "gym:CartPole-v1"], "there is no agent 'dqm': did you mean 'dqn' or 'dqfd' or 'dmpo'?"),
    (["train", "jumping", "gym:CartPole-v1"], "there is no agent 'jumping': valid: "),
    (["train", "dqn", "gmy:CartPole-v1"], "no family of environments 'gmy'; a name is like 'gym:CartPole-v1', or"),
    (["train", "dqn", "CartPole-v1"], "'CartPole-v1' names no family of environments"),
    (["train", "dqn", "gym:CartPol-v1"], "no environment 'gym:CartPol-v1'; did you mean 'gym:CartPole-v1'"),
    (["train", "dqn", "gym:nowhere_to_be_found:X-v0"], "No module named 'nowhere_to_be_found'"),
    (["train", "dqn", "gym:Pendulum-v1"], "DQN needs an environment with one discrete action"),
    ([*_CARTPOLE, "--env-set", "max_episode_stps=5"], "no option 'max_episode_stps'; did you mean 'max_episode_steps'"),
    ([*_CARTPOLE, "--env-set", "sutton_barto_reward=7"], "is 7: it must be true or false"),
    ([*_CARTPOLE, "--env-set", "max_episode_steps"], "'max_episode_steps' is not a setting: write name=value"),
    ([*_CARTPOLE, "--set", "learning_rat=1"], "DQN has no setting 'learning_rat': did you mean 'learning_rate'"),
    ([*_CARTPOLE, "--set", "learning_rate=fast"], "learning_rate is 'fast': it must be a number"),
    ([*_CARTPOLE, "--set", "learning_rate={[1]:2}"], "learning_rate is '{[1]:2}': it must be a number"),
    ([*_CARTPOLE, "--set", "batch_size=2.5"], "batch_size is '2.5': it must be a whole number"),
    ([*_CARTPOLE, "--set", "dueling=1"], "dueling is '1': it must be true or false"),
    ([*_CARTPOLE, "--set", "hidden_sizes=big"], "hidden_sizes is 'big': it must be whole numbers such as 64,64"),
    ([*_CARTPOLE, "--set", "replay=3"], "replay is a group of settings: set one of them, such as replay.max_size."),
    ([*_CARTPOLE, "--set", "replay.demo_ratio=0.1"], "replay.demo_ratio is the share of demonstrations: give some"),
    (["train", "sqil", "gym:Pendulum-v1"], "sqil learns from demonstrations: give it some (--demos DIR)."),
    ([*_CARTPOLE, "--run-dir", "~nobody_here/x"], "~nobody_here/x can't be found: "),
    ([*_CARTPOLE, "--run-dir", "x" * 300], "can't be read: File name too long"),
    ([*_CARTPOLE, "--set", "dueling"], "'dueling' is not a setting: write name=value"),
    ([*_CARTPOLE, "--set", "replay.n_step=0"], "acme-ext: replay.n_step is 0: it must be at least 1"),
    ([*_CARTPOLE, "--set", "replay.max_size=9"], "give min_size <= 9 or a larger max_size"),
    ([*_CARTPOLE, "--set", "discount=1.5"], "discount is 1.5: it must lie in [0, 1]"),
    ([*_CARTPOLE, "--seed", "-1"], "seed is -1: it must lie in [0, 2**31)"),
    ([*_CARTPOLE, "--eval-every", "-5"], "evaluation.every is -5: it must not be negative"),
    ([*_CARTPOLE, "--checkpoint-every", "nan"], "checkpoints.every_s is nan"),
    ([*_CARTPOLE, "--run-dir", "/proc/nowhere/run"], "the folder /proc/nowhere/run can't be written: "),
    ([*_CARTPOLE, "--run-dir", "/dev/null/run"], "the folder /dev/null/run can't be written: Not a directory"),
    ([*_CARTPOLE, "--actors", "2", "--replay-shards", "3"], "3 replay shards need as many actors to write to them"),
    ([*_CARTPOLE, "--actors", "2", "--inference", "server", "--inference-servers", "3"], "3 inference servers need as"),
    ([*_CARTPOLE, "--actors", "2", "--inference-servers", "1"], "inference_servers is 1: that needs inference on the "),
    ([*_CARTPOLE, "--inference-servers", "2"], "is only for programs: add --actors N or --on processes."),
    ([*_CARTPOLE, "--actors", "2", "--restart", "-1"], "restarts is -1: it must not be negative"),
    ([*_CARTPOLE, "--on", "ray", "--ray-wait", "nan"], "wait_s is nan: it must not be negative"),
    ([*_CARTPOLE, "--restart", "2"], "--restart is only for programs: add --actors N or --on"),
    ([*_CARTPOLE, "--on", "compiled", "--inference-servers", "2"], "--inference-servers can't be used with --on"),
    ([*_CARTPOLE, "--on", "compiled", "--replay-every", "600"], "leave checkpoints.replay_every_s (--replay-every)"),
    (["train", "bc", "data:x", "--num-envs", "2"], "--num-envs can't be used with data:FOLDER"),
    (["train", "bc", "data:x", "--on", "threads", "--replay-every", "9"], "--replay-every can't be used with data:"),
    (["evaluate", "x", "--video-episodes", "5"], "--video-episodes requires --video FILE"),
    (["record", "x", "-o", "y", "--seed", "-1"], "seed is -1: it must lie in [0, 2**31)"),
    (["tournament", "random", "minimax", "--seed", "-1"], "seed is -1: it must lie in [0, 2**31)"),
    ([*_CARTPOLE, "--actors", "2", "--accelerated", "learner,replay"], "accelerated has 'replay': only "),
    (["evaluate", "x", "--every-reply", "--video", "x.gif"], "all possible games: it can't be used with --video"),
    (["evaluate", "x", "--every-reply", "--video-episodes", "5"], "it can't be used with --video-episodes"),
    (["evaluate", "x", "--every-reply", "--episodes", "5"], "all possible games: it can't be used with --episodes"),
    (["evaluate", "x", "--every-reply", "--set", "epsilon=1"], "all possible games: it can't be used with --set"),
    (["evaluate", "nowhere"], "nowhere is not a run directory: there is no such folder"),
    (["plot", "nowhere"], "nowhere is not a run directory: there is no such folder"),
]  # fmt: skip


_BAD_FLAGS = [
    ([*_CARTPOLE, "--", "--lp_termination_notice_secs=9"], "--lp_termination_notice_secs=9 is only for programs: add "),
    ([*_CARTPOLE, "--on", "ray", "--", "--lp_launch_type=local_mp"], "--on ray contradicts --lp_launch_type"),
    ([*_CARTPOLE, "--actors", "2", "--", "--tmux_session_name=x"], "--tmux_session_name has no effect on a program of"),
]


_WITHOUT_REVERB = "the replay is in the embedded table, because Reverb is not installed here."


def _sentences(err: str) -> list[str]:
    """Returns the lines of stderr, but for those that say what is being loaded and that there is no Reverb."""
    return [line for line in err.splitlines() if "acme-ext: loading " not in line and _WITHOUT_REVERB not in line]


@pytest.mark.parametrize(("arguments", "told"), _BAD, ids=[" ".join(arguments[1:]) for arguments, _ in _BAD])
def test_bad_input_is_one_sentence_and_nothing_is_written(tmp_path, monkeypatch, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = _sentences(captured.err)
    assert line.startswith("acme-ext: ")
    assert told in line
    assert not list(tmp_path.iterdir())


@pytest.mark.reverb
@pytest.mark.parametrize(("arguments", "told"), _BAD_FLAGS, ids=[arguments[-1] for arguments, _ in _BAD_FLAGS])
def test_a_bad_flag_of_launchpads_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    (line,) = _sentences(capsys.readouterr().err)
    assert told in line
    assert not list(tmp_path.iterdir())


def test_a_count_that_is_no_whole_number_above_0_is_refused_by_its_option(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for option in ("--steps", "--num-envs", "--eval-episodes", "--inference-servers"):
        with pytest.raises(SystemExit) as end:
            cli.main([*_CARTPOLE, option, "0"])
        assert end.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"argument {option}: '0' is no whole number above 0" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            [*_CARTPOLE, "--dir", "x"],
            "acme-ext train: error: unrecognized arguments: --dir x; did you mean '--run-dir'",
        ),
        (["data", "--too=x", "y"], "acme-ext data: error: unrecognized arguments: --too=x; did you mean '--to'?"),
        ([*_CARTPOLE, "more"], "acme-ext train: error: unrecognized arguments: more\n"),
        (
            [*_CARTPOLE, "--set", "batch_size=8", "n_step=2"],
            "unrecognized arguments: n_step=2; write --set or --env-set before each setting\n",
        ),
    ],
)
def test_an_unknown_option_is_told_with_the_nearest_of_the_command(capsys, arguments, told):
    with pytest.raises(SystemExit, match="2"):
        cli.parse(arguments)
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("text", ["none", "None"])
def test_an_option_of_the_environment_may_be_none(text):
    made = train.experiment_from(cli.parse([*_CARTPOLE, "--env-set", f"max_episode_steps={text}"]))
    assert made.environment_options == {"max_episode_steps": None}


@pytest.mark.parametrize(
    ("text", "value"),
    [("5000", 5_000), ("5_000", 5_000), ("5e3", 5_000), ("1.5e6", 1_500_000), ("9" * 20, int("9" * 20))],
)
def test_a_count_may_have_an_exponent(text, value):
    assert common.count(text) == value


def test_a_text_that_is_no_whole_number_above_0_is_no_count():
    for text in ("inf", "nan", "1e400", "0.5", "1.5", "1e-3", "-1", "", "x"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no whole number above 0"):
            common.count(text)


@pytest.mark.parametrize(
    "arguments", [["muzero", "bsuite:catch/0"], ["alphazero", "board:tic_tac_toe", "--on", "compiled"]]
)
def test_a_search_without_mctx_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.setitem(sys.modules, "mctx", None)
    assert cli.main(["train", *arguments, "--run-dir", str(tmp_path / "run"), "--quiet"]) == 2
    assert "a search needs mctx, not installed here" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_agent_for_recorded_data_warns_where_it_has_none(tmp_path, capfd):
    arguments = ["--steps", "20", "--eval-episodes", "1", "--run-dir", str(tmp_path / "run"), "--quiet"]
    assert cli.main(["train", "bc", "gym:CartPole-v1", *arguments]) == 0
    out = capfd.readouterr().out
    assert "warning: bc is made for recorded data (data:DIR in place of the environment); this run has none" in out
    assert "over 1 episode\n" in out


def test_the_options_make_the_experiment():
    options = cli._parser().parse_args(
        [
            *_CARTPOLE,
            *("--steps", "1_000", "--seed", "3", "--num-envs", "8", "--run-dir", "x/y"),
            *("--set", "learning_rate=3e-4", "--set", "hidden_sizes=32,16", "--set", "huber_delta=none"),
            *("--env-set", "max_episode_steps=50", "--env-set", "sutton_barto_reward=true"),
            *("--eval-every", "0", "--eval-episodes", "7", "--checkpoint-every", "2.5"),
        ]
    )
    made = train.experiment_from(options)
    assert (made.environment, made.steps, made.seed, made.num_envs, made.run_dir) == (
        "gym:CartPole-v1",
        1000,
        3,
        8,
        "x/y",
    )
    config = made.builder.config
    assert (config.learning_rate, config.hidden_sizes, config.huber_delta) == (3e-4, (32, 16), None)
    assert made.environment_options == {"max_episode_steps": 50, "sutton_barto_reward": True}
    assert (made.evaluation.every, made.evaluation.final_episodes, made.checkpoints.every_s) == (0, 7, 2.5)


def test_a_bonus_is_a_setting_with_an_option_of_its_own():
    def made(*options):
        return train.experiment_from(cli._parser().parse_args([*_CARTPOLE, *options])).builder

    assert made().intrinsic is None
    assert made("--intrinsic", "rnd") == made("--set", "intrinsic=rnd") == made().replace(intrinsic="rnd")
    with pytest.raises(UsageError, match="--intrinsic rnd contradicts --set intrinsic=rnd_shuffled"):
        made("--intrinsic", "rnd", "--set", "intrinsic=rnd_shuffled")
    with pytest.raises(UsageError, match="there is no intrinsic 'rdn'"):
        made("--intrinsic", "rdn")


def test_a_family_has_its_own_defaults():
    made = train.experiment_from(cli._parser().parse_args(["train", "dqn", "atari:Pong", "--set", "batch_size=16"]))
    assert (made.builder.config.batch_size, made.builder.config.replay) == (16, ATARI.replay)


_SMALL = ["--set", "replay.min_size=100", "--set", "hidden_sizes=16", "--set", "batch_size=16"]


def test_train_then_evaluate_then_plot(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    arguments = [
        *_CARTPOLE,
        "--steps",
        "400",
        "--num-envs",
        "4",
        "--eval-every",
        "200",
        "--eval-episodes",
        "5",
        *_SMALL,
    ]
    assert cli.main([*arguments, "--quiet"]) == 0
    run = Path("runs/dqn-gym-CartPole-v1-hidden_sizes=16-batch_size=16-replay.min_size=100-s0")
    told = capfd.readouterr()
    assert told.err == ""  # neither a progress line nor Reverb's notes
    lines = dict(line.split(maxsplit=1) for line in _sentences(told.out))
    assert re.fullmatch(r"40[0-3] of the environment, \d+ of the learner", lines["steps"])
    assert lines["curve"] == str(run / "curve.png")
    assert lines["everything"] == str(run)
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert lines["evaluation"].startswith(f"return {evaluation['episode_return_mean']:.4g} (std ")
    assert lines["evaluation"].endswith(" over 5 episodes")
    for name in ("config.json", "curve.png", "logs/actor.csv", "logs/learner.csv", "logs/evaluator.csv"):
        assert (run / name).stat().st_size > 0
    assert not list((run / "replay").iterdir())

    assert cli.main(["evaluate", str(run)]) == 0
    assert capfd.readouterr().out == f"evaluation  {lines['evaluation']}\n"
    assert cli.main(["evaluate", str(run), "--episodes", "3", "--set", "evaluation_epsilon=1"]) == 0
    assert capfd.readouterr().out.endswith(" over 3 episodes\n")

    assert cli.main(["plot", str(run), "-o", "one.svg"]) == 0
    assert capfd.readouterr().out == "one.svg\n"
    assert "gym:CartPole-v1" in Path("one.svg").read_text()

    # The same command again: evaluated, not trained; and with a terminal's line.
    assert cli.main(arguments) == 0
    again = capfd.readouterr()
    assert again.err.startswith("acme-ext: loading JAX")
    folder, resuming, *_ = _sentences(again.err)
    assert folder == f"the run directory is {run}"
    assert resuming.startswith(f"resuming {run} at step 40")
    assert dict(line.split(maxsplit=1) for line in again.out.splitlines()) == lines


@pytest.mark.release
def test_a_loss_that_is_no_number_is_one_sentence(tmp_path, capfd):
    run = tmp_path / "run"
    arguments = [*_CARTPOLE, "--steps", "400", "--run-dir", str(run), *_SMALL, "--set", "learning_rate=1e30"]
    assert cli.main([*arguments, "--checkpoint-every", "1e-9", "--quiet"]) == 1
    assert re.fullmatch(
        r"acme-ext: the loss, gradient or TD error was not finite at learner step \d+: "
        r"the run stops\. Its checkpoint of step \d+ stays\.\n",
        capfd.readouterr().err,
    )
    assert CheckpointStore(run / "checkpoints").restore({}) is not None
    assert cli.main(["evaluate", str(run), "--episodes", "2"]) == 0


def test_another_config_in_the_same_directory_is_one_sentence(tmp_path, capsys):
    rundir = RunDirectory(tmp_path)
    rundir.write_config(Experiment(DQN(), "gym:CartPole-v1").describe())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    here = ["--run-dir", str(tmp_path)]
    for arguments, told in (
        ([*_CARTPOLE, "--seed", "1"], "seed is 0 there and 1 here"),
        (
            [*_CARTPOLE, "--set", "replay.n_step=7"],
            f"config.replay.n_step is {DQN().config.replay.n_step} there and 7 here",
        ),
        (
            [*_CARTPOLE, "--env-set", "max_episode_steps=9"],
            "environment_options.max_episode_steps is (absent) there and 9",
        ),
        (["train", "dqn", "gym:Acrobot-v1"], "environment is 'gym:CartPole-v1' there and 'gym:Acrobot-v1' here"),
    ):
        assert cli.main([*arguments, *here]) == 2
        (line,) = _sentences(capsys.readouterr().err)
        assert told in line
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_evaluate_refuses_what_a_script_made(tmp_path, capsys):
    rundir = RunDirectory(tmp_path)
    rundir.write_config({**Experiment(DQN(), "gym:CartPole-v1").describe(), "environment": {"named": "my maze"}})
    assert cli.main(["evaluate", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the agent or environment of {tmp_path} can't be loaded by its name: 'my maze' is known" in line


def _logged(folder: Path, values: list[float], **fields: object) -> str:
    """Makes a run directory with an evaluation each 100 steps."""
    rundir = RunDirectory(folder)
    rundir.write_config(Experiment(**{"builder": DQN(), "environment": "gym:CartPole-v1", **fields}).describe())
    rows = [f"{value},{100 * i},{float(i)}" for i, value in enumerate(values, 1)]
    (rundir.logs / "evaluator.csv").write_text(
        "\n".join(["episode_return_mean,environment_steps,wall_time_s", *rows, ""])
    )
    return str(folder)


def _shown(svg: Path) -> str:
    """Returns the text of a figure, which Matplotlib draws as glyphs and notes as comments."""
    return " ".join(re.findall(r"<!-- (.*?) -->", svg.read_text()))


def test_plot_draws_a_band_for_seeds_and_a_line_for_each_setting(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    seeds = [_logged(tmp_path / f"s{seed}", [10.0 + seed, 20.0], seed=seed) for seed in range(3)]
    other = _logged(tmp_path / "other", [1.0, 2.0], num_envs=8)

    assert cli.main(["plot", *seeds, "-o", "seeds.svg"]) == 0
    assert "(3 seeds)" in _shown(Path("seeds.svg"))
    assert "band: least to greatest seed" in _shown(Path("seeds.svg"))
    assert cli.main(["plot", *seeds, other, "-o", "mixed.svg", "--x", "wall_time_s"]) == 0
    shown = _shown(Path("mixed.svg"))
    assert "num_envs=1 (3 seeds)" in shown
    assert "num_envs=8" in shown
    assert "wall time (s)" in shown
    assert cli.main(["plot", seeds[0]]) == 0
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == "seeds.svg\nmixed.svg\ncurves.png\n"

    for arguments, told in (
        (["-o", "curve.tiff9"], "is not a name for a figure"),
        (["-o", "/dev/null/x.png"], "/dev/null is a file: choose a folder"),
        (["-o", "/proc/nowhere/x.png"], "can't be written"),
        (["--x", "frames"], "has no column 'frames'"),
    ):
        assert cli.main(["plot", seeds[0], *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert told in line


def test_ctrl_c_before_anything_has_begun(monkeypatch, capsys):
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "experiment_from", interrupted)
    assert cli.main(_CARTPOLE) == 130
    assert _sentences(capsys.readouterr().err) == []


@pytest.mark.reverb
def test_before_anything_is_loaded_it_says_what_will_be(monkeypatch, capsys):
    monkeypatch.setattr(train, "experiment_from", lambda options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(_CARTPOLE)
    assert capsys.readouterr().err == "acme-ext: loading JAX, TensorFlow and Reverb ...\n"
    with pytest.raises(ZeroDivisionError):
        cli.main([*_CARTPOLE, "--quiet"])
    assert capsys.readouterr().err == ""


def test_a_pager_may_read_less_than_is_printed():
    made = "from acme_ext.commands import cli, listing\nimport sys\nsys.exit(cli.main(['list']))"
    done = subprocess.run(
        f'{sys.executable} -c "{made}" | true; echo ${{PIPESTATUS[0]}}',
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout in ("141\n", "0\n")  # 0: all was written before


@pytest.mark.parametrize("module", ["acme_ext", "acme_ext.commands.cli"])
def test_the_version_by_python_m(module):
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"acme-ext {acme_ext.__version__}\n"


def test_modules_of_the_current_folder_are_found(tmp_path):
    """As `python -m` has it; the script's own folder is all that Python puts on the path."""
    (tmp_path / "my_environments.py").write_text("import gymnasium\ngymnasium.register('Slope-v0', lambda: None)\n")
    line = [Path(sys.executable).with_name("acme-ext"), "train", "dqn", "gym:my_environments:Slope-v1"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    (sentence,) = _sentences(done.stderr)
    assert sentence == (
        "acme-ext: no environment 'gym:my_environments:Slope-v1'; did you mean 'gym:my_environments:Slope-v0'?"
    )
    assert done.returncode == 2


@pytest.mark.reverb
def test_too_few_steps_to_learn_anything_are_told_before_and_after(tmp_path, capfd):
    # 1,000 that are sampled from, and 128 that wait to be shuffled.
    few = ["--steps", "300", "--run-dir", str(tmp_path / "run"), "--eval-episodes", "1", "--eval-every", "0"]
    assert cli.main([*_CARTPOLE, *few, "--quiet"]) == 0
    before, after, *_ = capfd.readouterr().out.splitlines()
    assert before == (
        "warning: nothing will be learned: the replay gives the learner its first batch after 1,128 items, "
        "and the run has 300 steps: give the run more, or the agent a smaller replay.min_size or batch_size."
    )
    assert after.startswith("warning: nothing was learned, because the replay never held enough")


def test_too_few_steps_for_a_batch_of_unrolls_are_told(tmp_path, capfd):
    few = ["--steps", "300", "--run-dir", str(tmp_path / "run"), "--eval-episodes", "1", "--eval-every", "0"]
    assert cli.main(["train", "ppo", "gym:CartPole-v1", *few, "--quiet"]) == 0
    before, *_ = capfd.readouterr().out.splitlines()
    assert before.startswith(
        "warning: nothing will be learned: the replay gives the learner its first batch after 8 unr"
    )
    assert before.endswith("give the run more, or the agent a smaller replay.length or batch_size.")


def test_an_environment_that_ends_the_process_is_an_error_and_the_run_is_saved(tmp_path, monkeypatch, capfd):
    (tmp_path / "leaving.py").write_text(
        "import sys, my_envs\n"
        "class Maze(my_envs.Maze):\n"
        "    def step(self, action):\n"
        "        self.taken = getattr(self, 'taken', 0) + 1\n"
        "        return sys.exit(0) if self.taken == 150 else super().step(action)\n"
        "def make(seed, evaluation): return Maze(4)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = tmp_path / "run"
    assert cli.main(["train", "dqn", "py:leaving:make", "--steps", "300", "--run-dir", str(run), "--quiet"]) == 1
    assert "the environment, or another part of the run, called sys.exit(0)." in capfd.readouterr().err
    assert list((run / "checkpoints").iterdir())
    assert cli.main(["evaluate", str(run), "--episodes", "900"]) == 1
    assert "the environment, or another part of the run, called sys.exit(0)." in capfd.readouterr().err


def test_a_sweep_has_a_directory_for_each_setting_and_is_plotted_by_its_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rates = ("0.001", "0.0001", "0.003")  # the first is the default
    for rate in rates:
        experiment, again = (
            train.experiment_from(cli._parser().parse_args([*_CARTPOLE, "--set", f"learning_rate={text}"]))
            for text in (rate, f"{float(rate):.1e}")
        )
        assert again.directory == experiment.directory
        _logged(experiment.directory, [10.0, 20.0], builder=experiment.builder, steps=1_000 * len(rate))
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "dqn-gym-CartPole-v1-learning_rate=0.0001-s0",
        "dqn-gym-CartPole-v1-learning_rate=0.003-s0",
        "dqn-gym-CartPole-v1-s0",
    ]
    assert cli.main(["plot", "runs", "-o", "sweep.svg"]) == 0
    assert re.findall(r"learning_rate=([\d.]+)", _shown(Path("sweep.svg"))) == ["0.0001", "0.001", "0.003"]


def test_an_error_that_is_nobodys_is_shown_as_it_is(monkeypatch):
    monkeypatch.setattr(train, "experiment_from", lambda options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(_CARTPOLE)


def test_a_pipe_that_breaks_elsewhere_is_no_pager(monkeypatch):
    def broken(options):
        raise BrokenPipeError

    monkeypatch.setattr(train, "experiment_from", broken)
    with pytest.raises(BrokenPipeError):
        cli.main(_CARTPOLE)


@pytest.mark.release
def test_a_profile_is_of_one_process(tmp_path, capfd):
    folder = tmp_path / "run"
    command = ["train", "dqn", "bsuite:catch/0", "--num-envs", "2", "--steps", "120", "--profile", "--quiet"]
    command += ["--eval-every", "0", "--eval-episodes", "2", "--run-dir", str(folder)]
    for setting in ("hidden_sizes=4", "batch_size=4", "replay.min_size=20", "sgd_steps_per_call=2"):
        command += ["--set", setting]
    assert cli.main([*command, "--actors", "2"]) == 2
    assert "--profile is only for runs in one process" in capfd.readouterr().err
    assert not folder.exists()
    assert cli.main(command) == 0
    table = (folder / "profile.txt").read_text()
    assert table in capfd.readouterr().out
    names = {line.split("  ")[0] for line in table.splitlines()}
    assert {"environment", "policy", "writer", "waiting for replay", "learner", "housekeeping", "all"} <= names
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {event["name"] for event in events} >= {"environment", "policy", "writer", "learner"}


def test_the_options_of_evaluate_reach_the_run(monkeypatch):
    given = {}

    class Run:
        def evaluate(self, episodes, **fields):
            given.update(episodes=episodes, **fields)
            return Score(np.zeros(2), np.zeros(2))

    monkeypatch.setattr("acme_ext.launch.runs.trained.load", lambda path, **fields: given.update(fields) or Run())
    assert cli.main(["evaluate", "x", "--best", "--explore", "--episodes", "3"]) == 0
    assert (given["best"], given["explore"], given["episodes"]) == (True, True, 3)
    options = train.parse("dqn", "gym:CartPole-v1", "--replay-every", "7", "--devices", "2", "--checkpoint-every", "5")
    made = train.experiment_from(options)
    assert (made.num_devices, made.checkpoints.every_s, made.checkpoints.replay_every_s) == (2, 5, 7)

"""Launchpad's own flags on the command line of a program."""

import math
import subprocess
import sys

import pytest

from acme_ext import launch
from acme_ext.commands import cli
from acme_ext.errors import UsageError
from acme_ext.launch import runner
from acme_ext.launch.engines.program import launchpad_flags

_CODE = """
import pathlib, sys, time
import launchpad as lp
from absl import flags
from acme_ext.launch.hosts.local import LocalSupervisor
from acme_ext.launch.hosts.node_process import Options

folder = pathlib.Path(sys.argv[1])

def end_slowly():
    (folder / "began").touch()
    lp.wait_for_stop()
    time.sleep(2)
    (folder / "ended").touch()

def coordinate():
    while not (folder / "began").exists():
        time.sleep(0.01)
    lp.stop()
    lp.wait_for_stop()

flags.FLAGS(["test", "--lp_termination_notice_secs=1"])  # after which Launchpad in a node would end it
program = lp.Program("test")
for name, function in {"watcher": end_slowly, "coordinator": coordinate}.items():
    with program.group(name):
        program.add_node(lp.PyNode(function))
options = Options(folder, grace_s=float(sys.argv[2]))
sys.exit(LocalSupervisor(lambda first: program, options).run())
"""


@pytest.mark.parametrize(
    ("arguments", "on", "grace_s"),
    [
        ([], None, None),
        (["--lp_termination_notice_secs=60"], None, 60),
        (["--lp_termination_notice_secs", "0"], None, 0),
        (["--lp_termination_notice_secs=-1"], None, math.inf),
        (["--lp_launch_type=local_mp"], "processes", None),
        (["--lp_launch_type=local_mt", "--lp_termination_notice_secs=5"], "threads", 5),
    ],
)
def test_what_flags_of_launchpads_say_of_a_program_is_applied(arguments, on, grace_s):
    assert launchpad_flags.take(arguments) == (on, grace_s)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--lp_launch_type=vertex_ai"], "--lp_launch_type=vertex_ai has no effect on a program of acme-ext: local_mp"),
        (["--lp_launch_type=test_mt"], r"\(--on processes\) and local_mt \(--on threads\) do, and on several machines"),
        (["--lp_launch_type=boats"], "of Launchpad's flags: flag --lp_launch_type=boats: value should be one of <loc"),
        (["--lp_termination_notice_secs=soon"], "flag --lp_termination_notice_secs=soon: invalid literal for int"),
        (["--lp_termination_notice_secs"], "of Launchpad's flags: Missing value for flag --lp_termination_notice_"),
        (["--nolp_worker_manager_registers_signals"], "_signals has no effect .*: Ctrl-C and SIGTERM are taken here"),
        (["--tmux_open_window=learner"], "--tmux_open_window has no effect .*: follow what each of them prints in"),
        (["--lp_dummy_int=3"], "--lp_dummy_int has no effect .*: it is between Launchpad and the processes that it"),
        (["--lp_task_id=3"], "--lp_task_id has no effect .*: it is between Launchpad"),
        (["--lp_termination_notice=3"], "Launchpad has no flag --lp_termination_notice: did you mean 'lp_termination"),
        (["--verbosity=1"], "Launchpad has no flag --verbosity: valid: lp_launch_type, lp_termination_notice_secs."),
        (["dqn"], "'dqn' is not a flag; a flag of Launchpad is"),
    ],
)
def test_a_flag_without_effect_is_refused_by_its_name(arguments, told):
    with pytest.raises(UsageError, match=told):
        launchpad_flags.take(arguments)


def test_flags_after_two_dashes_reach_the_program(monkeypatch, tmp_path):
    asked = []

    def run(experiment, on, **options):
        asked.append(on)
        raise UsageError("it was only asked for.")

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.chdir(tmp_path)
    flags = ["--lp_launch_type=local_mt", "--lp_termination_notice_secs=60"]
    assert cli.main(["train", "dqn", "gym:CartPole-v1", "--", *flags]) == 2
    assert asked == [launch.Threads(actors=1, grace_s=60)]


def test_a_negative_grace_is_refused():
    with pytest.raises(UsageError, match="grace_s is -1"):
        launch.Processes(grace_s=-1)


@pytest.mark.parametrize(("grace_s", "ended"), [(math.inf, True), (0, False)])
def test_a_node_has_the_time_to_end_that_it_is_given(grace_s, ended, tmp_path):
    line = [sys.executable, "-c", _CODE, str(tmp_path), str(grace_s)]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""}
    subprocess.run(line, env=environment, check=True, timeout=120)
    assert (tmp_path / "began").exists()
    assert (tmp_path / "ended").exists() == ended

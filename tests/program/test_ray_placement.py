"""What the nodes of a program ask of a cluster, and what is said where it can't be given. Nothing of Ray runs."""

import importlib.util
import os
import re
import sys
import sysconfig

import archives
import pytest

from acme_ext import launch
from acme_ext.commands.train import parse
from acme_ext.config.assignments import parse_amounts
from acme_ext.errors import UsageError
from acme_ext.launch.hosts import launcher
from acme_ext.launch.hosts.ray import connection, placement


def test_amounts_from_the_command_line():
    found = parse_amounts(["learner=GPU:1,CPU:4", "actor=CPU:0.5", "actor=far away:1"])
    assert found == {"learner": {"GPU": 1.0, "CPU": 4.0}, "actor": {"far away": 1.0}}


@pytest.mark.parametrize("text", ["learner=GPU", "learner=GPU:one", "learner=", "learner=1,GPU:"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(UsageError, match="write learner=GPU:1,CPU:4"):
        parse_amounts([text])


def test_every_node_asks_for_a_cpu_where_nothing_is_said():
    topology = launch.Ray(actors=3, replay_shards=2, inference="server", resources={"learner": {"GPU": 1, "CPU": 4}})
    assert list(topology.groups.items()) == [
        ("replay", 2),
        ("coordinator", 1),
        ("learner", 1),
        ("evaluator", 1),
        ("inference", 1),
        ("actor", 3),
    ]
    asked = topology.all_resources
    assert asked["learner"] == {"GPU": 1, "CPU": 4}
    assert asked["coordinator"] == {"CPU": 0.1}
    assert all(asked[group] == {"CPU": 1.0} for group in ("replay", "evaluator", "inference", "actor"))


def test_each_inference_server_has_a_place():
    asked = {"inference": {"GPU": 1}}
    topology = launch.Ray(actors=3, inference="server", inference_servers=2, resources=asked)
    assert topology.groups["inference"] == 2
    assert topology.all_resources["inference"] == {"CPU": 1.0, "GPU": 1}


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"actors": {"CPU": 1}}, "did you mean 'actor'"),
        ({"inference": {"CPU": 1}}, "resources are asked for 'inference'"),  # there is no such node
        ({"actor": {"CPU": 0}}, "actor asks for 0 CPU: it must be a number above 0"),
        ({"learner": {"GPU": "1"}}, "learner asks for '1' GPU: it must be a number above 0"),
        ({"actor": {"": 1}}, "actor asks for a resource without a name"),
        ({"actor": {"CPU": 1.5}}, "whole if above 1"),
        ({"actor": {"CPU": float("nan")}}, "it must be a number above 0"),
        ({"replay": {"GPU": 1}}, "replay asks for a GPU and is not among the accelerated"),
    ],
)
def test_resources_that_can_not_be_asked_for_are_refused(resources, message):
    with pytest.raises(UsageError, match=message):
        launch.Ray(resources=resources)


def test_a_bundle_is_pinned_by_the_address_and_its_pin_is_no_resource():
    (asked,), _ = placement.bundles(["learner"], [{"CPU": 1.0}], "10.0.0.1", False, {})
    assert asked == {"CPU": 1.0, "node:10.0.0.1": 0.001}
    assert placement.total([asked, {"CPU": 0.5, "arm": 1}]) == {"CPU": 1.5, "arm": 1}
    assert placement.actor_options({"CPU": 0.1, "arm": 2}) == {"num_cpus": 0.1, "num_gpus": 0, "resources": {"arm": 2}}


_HOSTS = [
    ("10.0.0.1", {"CPU": 4.0, "node:10.0.0.1": 1.0}),
    ("10.0.0.2", {"CPU": 8.0, "GPU": 1.0, "node:10.0.0.2": 1.0}),
]


@pytest.mark.parametrize(
    ("bundles", "reasons"),
    [
        ([{"CPU": 4.0}, {"CPU": 8.0}], []),
        ([{"CPU": 9.0}], ["a asks for 9 CPU, which no host has"]),
        (
            [{"CPU": 1.0, "GPU": 1.0, "node:10.0.0.1": 0.001}],
            ["a asks for 1 CPU, 1 GPU, which 10.0.0.1, where the run directory is, does not have"],
        ),
        ([{"CPU": 1.0, "arm": 1.0}], ["a asks for 1 CPU, 1 arm, which no host has"]),
        ([{"CPU": 6.0}] * 3, ["there is too little CPU"]),
        ([{"CPU": 9.0}] * 9, [*(f"{name} asks for 9 CPU, which no host has" for name in "abc"), "and others likewise"]),
    ],
)
def test_what_is_missing_is_said(bundles, reasons):
    assert placement.missing("abcdefghi"[: len(bundles)], bundles, _HOSTS) == reasons


def test_folders_of_modules_in_the_code_that_travels_are_relative(tmp_path, monkeypatch):
    (tmp_path / "code" / "lib").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    code = tmp_path / "code"
    given = [str(code), str(code / "lib"), str(tmp_path / "other"), str(tmp_path / "gone")]
    monkeypatch.setattr(sys, "path", [*given, *sys.path])
    assert launcher.module_folders(code)[:3] == [".", "lib", str(tmp_path / "other")]
    assert launcher.module_folders(None)[:3] == given[:3]
    assert not any("site-packages" in folder for folder in launcher.module_folders(None))


@pytest.mark.parametrize(
    ("given", "variable", "address"),
    [
        (None, None, None),
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
        (None, "local", None),
        (None, "", None),
        ("auto", "10.0.0.1:6379", "auto"),
        ("local", "10.0.0.1:6379", None),
    ],
)
def test_the_cluster_is_the_one_that_was_given_or_the_variable_s(given, variable, address, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    assert connection.address_of(given) == address


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_runtime_environment_that_is_none_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        parse("dqn", "gym:CartPole-v1", "--on", "ray", "--runtime-env-json", text)
    assert f"argument --runtime-env-json: {text!r} is no object in JSON" in capsys.readouterr().err


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path):
    from acme_ext import launch
    from acme_ext.builders import DQN

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else find_spec(name))
    experiment = launch.Experiment(DQN(), "gym:CartPole-v1", run_dir=str(tmp_path / "run"))
    with pytest.raises(UsageError, match="needs the extra `ray`"):
        launch.run(experiment, launch.Ray())
    assert not (tmp_path / "run").exists()


_ASKED = [{"CPU": 1.0}, {"CPU": 2.0}, {"CPU": 8.0}]
_GROUPS = ["replay", "learner", "actor"]


@pytest.mark.parametrize(
    ("shared", "cpus", "pinned", "words"),
    [
        (True, 4.0, False, None),
        (False, 4.0, True, "is not shared by all hosts: replay, learner run on this one"),
        (None, 4.0, True, "no other host has joined yet that could share the run directory: replay, learner run on"),
        (None, 2.0, False, None),  # too small for them: wherever they come to, it is tried
        (False, 2.0, True, "is not shared by all hosts"),  # and refused, since nothing else is of any use
    ],
)
def test_writers_stay_on_this_host_unless_all_are_known_to_share_the_run_directory(shared, cpus, pinned, words):
    made, said = placement.bundles(_GROUPS, _ASKED, "10.0.0.1", shared, {"CPU": cpus})
    assert [made[0], made[1]] == [{**asked, **({"node:10.0.0.1": 0.001} if pinned else {})} for asked in _ASKED[:2]]
    assert made[2] == {"CPU": 8.0}
    assert (said is None) if words is None else (words in said)


def test_the_interpreter_s_own_folders_are_not_handed_to_what_an_environment_starts(tmp_path, monkeypatch):
    """Another Python would find this one's `re` in them."""
    given = {}

    class Process:
        def __init__(self, line, env, pass_fds):
            given.update(env)

        def poll(self):
            return 0

        wait = poll

    (tmp_path / "parts.zip").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "parts.zip"), *sys.path])
    monkeypatch.setattr(launcher.subprocess, "Popen", Process)
    assert launcher.run("local", None, False) == 0
    folders = given["PYTHONPATH"].split(os.pathsep)
    assert folders[:2] == [str(tmp_path), str(tmp_path / "parts.zip")]
    own = {os.path.dirname(re.__file__), sysconfig.get_config_var("DESTSHARED"), sysconfig.get_path("purelib")}
    assert own & set(sys.path)
    assert not {os.path.realpath(folder) for folder in own} & {os.path.realpath(folder) for folder in folders}


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`")
def test_all_of_the_package_travels_to_other_hosts():
    from ray._private.runtime_env.packaging import _get_excludes

    excluded = _get_excludes(archives.ROOT, list(connection.EXCLUDED))
    assert excluded(archives.ROOT / "runs" / "dqn" / "config.json")
    files = list((archives.ROOT / "acme_ext").rglob("*.py"))
    assert len(files) > 100
    assert [file for file in files if excluded(file)] == []

"""The whole check, with a make that only says what it was asked for."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]

_MAKE = """#!/bin/sh
target=$2
echo "$target" >>asked
if [ -n "$3" ]; then
  echo "$3" >>options
  for number in $AGAIN; do echo "FAILED tests/test_a.py::test_$number - assert 1 == 2"; done
  echo "== 1 passed in 2.00s =="
  exit "$ALONE"
fi
case $target in
  test) echo "== 5 passed in 1.25s =="; echo "a last word of a library";;
  test-newest) echo "== 3 passed in 9.50s ==";;
  test-slow) echo "E assert 3 in 4.5s"; echo "== 1 failed, 2 passed in 71.25s (0:01:11) ==";;
  *) echo "$target is clean";;
esac
if [ "$target" = "$FAILS" ]; then
  for number in $(seq "$FAILED"); do echo "FAILED tests/test_a.py::test_$number - assert 1 == 2"; done
  echo "make: *** [Makefile:9: $target] Error 1" >&2; exit 1
fi
"""


@pytest.fixture
def check(tmp_path):
    """Runs a copy of the check in which one target fails; returns what was asked for, the exit code and the output."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "make").write_text(_MAKE)
    (tmp_path / "bin" / "make").chmod(0o755)

    def check(fails, failed=0, alone=0, again=""):
        variables = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "FAILS": fails}
        environment = {**os.environ, **variables, "FAILED": str(failed), "ALONE": str(alone), "AGAIN": again}
        done = subprocess.run([tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True)
        assert done.stderr == ""
        return (tmp_path / "asked").read_text().split(), done.returncode, done.stdout.splitlines()

    return check


def test_the_readmes_test_command_comes_first_and_then_what_it_leaves_out(check):
    asked, code, lines = check("")
    assert asked == ["venv", "test", "test-slow", "test-newest", "lint", "types"]
    assert code == 0
    assert "types is clean" in lines
    assert lines[-3:] == [
        "make test: == 5 passed in 1.25s ==",
        "make test-slow: == 1 failed, 2 passed in 71.25s (0:01:11) ==",
        "make test-newest: == 3 passed in 9.50s ==",
    ]
    readme = (ROOT / "README.md").read_text()
    assert "\nmake test " in readme


@pytest.mark.parametrize("fails", ["test", "test-slow", "test-newest", "lint", "types"])
def test_whatever_fails_is_the_exit_code_and_the_others_run(check, fails):
    asked, code, lines = check(fails)
    assert len(asked) == 6
    assert code == 1
    assert not any("***" in line for line in lines)


@pytest.mark.parametrize("target", ["test", "test-slow", "test-newest"])
def test_the_few_tests_that_failed_are_run_once_more_alone(check, target, tmp_path):
    asked, code, lines = check(target, failed=2)
    assert code == 0
    assert asked.count(target) == 2
    assert len(asked) == 7
    assert (tmp_path / "options").read_text() == "ARGS=--last-failed --last-failed-no-failures none -n 0\n"
    assert "alone, tests/test_a.py::test_1 tests/test_a.py::test_2: == 1 passed in 2.00s ==" in lines[-6:]


def test_each_test_that_failed_beside_others_and_passed_alone_is_called_flaky(check):
    _, code, lines = check("test", failed=2)
    assert code == 0
    assert lines[-5:-2] == [
        "alone, tests/test_a.py::test_1 tests/test_a.py::test_2: == 1 passed in 2.00s ==",
        "flaky, passed alone: tests/test_a.py::test_1",
        "flaky, passed alone: tests/test_a.py::test_2",
    ]


def test_a_test_that_failed_twice_is_not_called_flaky(check):
    _, code, lines = check("test", failed=2, alone=1, again="1")
    assert code == 1
    assert [line for line in lines if "flaky" in line] == ["flaky, passed alone: tests/test_a.py::test_2"]


def test_nothing_is_called_flaky_where_the_second_run_broke_off(check):
    asked, code, lines = check("test", failed=1, alone=1)
    assert (len(asked), code) == (7, 1)
    assert not any("flaky" in line for line in lines)


def test_many_that_failed_are_not_run_again(check):
    asked, code, _ = check("test", failed=6)
    assert (len(asked), code) == (6, 1)


def test_without_an_environment_nothing_runs(check):
    asked, code, _ = check("venv")
    assert (asked, code) == (["venv"], 1)

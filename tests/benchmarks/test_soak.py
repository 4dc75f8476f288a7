"""The soak test: what it makes of samples, and one of a few seconds."""

import argparse
import re
import sys

import pytest

from acme_ext.errors import UsageError
from benchmarks.faults import soak
from benchmarks.faults.soak import Sample


def samples(rate, count=40, warm_up=0.0):
    """Samples that grow by `rate` MB in a million steps, after a warm-up of so many MB."""
    return [Sample(i, 1_000 * i, 100 + (warm_up if i > 3 else 0) + rate * i / 1_000) for i in range(count)]


def test_the_growth_is_the_slope_after_the_warm_up():
    found = soak.growth(samples(20.0, warm_up=500))
    assert found.rate == pytest.approx(20)
    assert str(found) == "600 MB at step 10,000, 601 MB at step 39,000: +20.0 MB in a million steps"


@pytest.mark.parametrize("few", [[], samples(1.0, 9), [Sample(i, 5, 100) for i in range(99)]])
def test_what_tells_nothing_is_refused(few):
    with pytest.raises(UsageError, match="too few to tell"):
        soak.growth(few)


@pytest.mark.parametrize(("agent", "limited"), [("dqn", True), ("sac", True), ("r2d2", False), ("ppo", False)])
def test_the_replay_of_transitions_is_small(agent, limited, tmp_path):
    options = argparse.Namespace(
        agent=agent, environment="gym:CartPole-v1", run_dir=tmp_path, num_envs=1, actors=0, set=["discount=0.9"]
    )
    words = soak._command(options)
    assert ("replay.max_size=10000" in words) == limited
    assert words[-1] == "discount=0.9"


@pytest.mark.release
def test_a_run_is_watched_and_held_to_the_bound(tmp_path, capfd):
    small = ["--set", "replay.min_size=50", "--set", "replay.max_size=100", "--set", "hidden_sizes=8"]
    arguments = ["dqn", "bsuite:catch/0", "--minutes", "0.1", "--every", "0.1", "--run-dir", str(tmp_path / "run")]
    code = soak.main([*arguments, *small, "--bound", "1e9"])
    out, err = capfd.readouterr()
    assert (code, err) == (0, "")
    *looks, verdict = out.splitlines()
    steps = [int(re.fullmatch(r" +[\d.]+ min +([\d,]+) steps +[\d,]+ MB", line)[1].replace(",", "")) for line in looks]
    assert 0 < steps[-1] == max(steps)
    assert re.fullmatch(r".* MB in a million steps; the bound is 1e\+09: held\.", verdict)


def test_a_missed_bound_is_its_exit_code(capfd, monkeypatch):
    # The word of a run that was told to end.
    monkeypatch.setattr(soak, "_command", lambda options: [sys.executable, "-c", "import sys; sys.exit(143)"])
    monkeypatch.setattr(soak, "watch", lambda process, *_: process.wait() and samples(60.0))
    assert soak.main(["--bound", "59.9"]) == 1
    assert "the bound is 59.9: MISSED." in capfd.readouterr().out
    assert soak.main(["--bound", "60.1"]) == 0


@pytest.mark.release
def test_a_run_that_fails_is_its_exit_code(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(soak, "watch", lambda process, *_: process.wait() and [])
    assert soak.main(["ppo", "bsuite:catch/0", "--set", "discont=1", "--run-dir", str(tmp_path / "run")]) == 1
    err = capfd.readouterr().err
    assert "did you mean 'discount'" in err
    assert "the run ended by itself, with exit code 2." in err
    assert soak.main(["dnq", "bsuite:catch/0"]) == 2
    assert "benchmarks.faults.soak: there is no agent 'dnq'" in capfd.readouterr().err

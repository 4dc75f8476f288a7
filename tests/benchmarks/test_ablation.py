"""Tests of the ablation, with budgets too small to learn anything."""

import dataclasses

import pytest

from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.agents.rainbow.config import MINATAR
from acme_ext.config.comparison import flatten
from benchmarks.learning import ablation
from benchmarks.learning import run as learning
from benchmarks.learning.settings import SETTINGS

PARTS = {"double", "dueling", "replay.prioritized", "replay.n_step", "distribution", "noisy"}


def config_of(variant):
    return ablation.settings("breakout")[variant].experiment(0, 1, learning.RUNS).builder.config


def changed(config, other):
    """The fields that both have and that differ, of their replay too."""
    mine, theirs = (flatten(dataclasses.asdict(each)) for each in (config, other))
    return {name for name in mine.keys() & theirs.keys() if mine[name] != theirs[name]}


def test_each_variant_is_without_one_part_and_all_are_there():
    assert config_of("rainbow") == MINATAR
    removed = [changed(config_of(variant), MINATAR) for variant in ablation.REMOVED]
    assert all(len(fields) == 1 for fields in removed)
    assert set().union(*removed) == PARTS
    assert len(ablation.VARIANTS) == 8
    assert list(ablation.settings("breakout")) == list(ablation.VARIANTS)


def test_dqn_has_the_same_numbers_and_none_of_the_parts():
    config = config_of("dqn")
    assert type(config) is DQNConfig
    # What prioritized replay alone reads is left as it is.
    unread = {name for name in changed(config, MINATAR) if name.startswith(("replay.priority", "replay.importance"))}
    assert changed(config, MINATAR) - unread == PARTS & flatten(dataclasses.asdict(DQNConfig())).keys()
    assert (config.double, config.dueling, config.replay.prioritized, config.replay.n_step) == (False, False, False, 1)


def test_on_catch_they_are_the_defaults_without_one_part():
    made = ablation.settings("catch")
    assert {setting.environment for setting in made.values()} == {"bsuite:catch/0"}
    whole = made["rainbow"].experiment(0, 1, learning.RUNS).builder.config
    for variant in ablation.REMOVED:
        config = made[variant].experiment(0, 1, learning.RUNS).builder.config
        assert len(changed(config, whole)) == 1
    assert not {ablation.folder(variant, "catch") for variant in ablation.VARIANTS} & SETTINGS.keys()


def test_its_runs_have_folders_of_their_own():
    folders = {ablation.folder(variant, game) for variant in ablation.VARIANTS for game in ("breakout", "asterix")}
    assert len(folders) == 16
    assert not folders & SETTINGS.keys()
    assert ablation.settings("asterix")["no-noisy"].environment == "minatar:asterix"


@pytest.mark.release
def test_variants_are_run_and_written_and_not_run_again(tmp_path, monkeypatch, capfd):
    small = {"replay.min_size": "50", "batch_size": "4", "image_features": "8"}
    made = {
        variant: dataclasses.replace(
            setting, num_envs=2, eval_every=100, eval_episodes=2, config={**setting.config, **small}
        )
        for variant, setting in ablation.settings("breakout").items()
    }
    monkeypatch.setattr(ablation, "settings", lambda game: made)
    arguments = ["--variants", "dqn", "no-noisy", "--steps", "200", "--seeds", "3", "5", "--jobs", "2"]
    arguments += ["--runs", str(tmp_path)]
    assert ablation.main(arguments) == 0
    page = (tmp_path / "ablation.md").read_text()
    assert "200 frames, 2 seeds" in page
    assert "--steps 200 --variants dqn no-noisy --seeds 3 5`" in page
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith(("| dqn", "| no-noisy"))]
    assert [row[0] for row in rows] == ["| dqn", "| no-noisy"]
    for _, mean, least, greatest, *_ in rows:
        assert 0 <= float(least) <= float(mean) <= float(greatest)
    assert str(tmp_path) not in page
    assert (tmp_path / "ablation.png").read_bytes().startswith(b"\x89PNG")
    capfd.readouterr()

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("evaluation.json")}
    assert len(before) == 4
    assert ablation.main(arguments) == 0
    assert "no-noisy, seed 3 is finished" in capfd.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--variants", "no-nosy"], "there is no variant 'no-nosy': did you mean 'no-noisy'"),
        (["--variants", "dqn", "dqn"], "--variants lists a value twice"),
        (["--seeds", "1", "1"], "--seeds lists a value twice"),
        (["--steps", "0"], "must be at least 1"),
        (["--game", "brakeout"], "did you mean 'minatar:breakout'"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message, tmp_path, capsys):
    assert ablation.main([*arguments, "--runs", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err

"""Evaluating, playing and comparing the agents of board games."""

import dataclasses
import json
import pathlib
from xml.etree import ElementTree

import jax
import numpy as np
import pytest

from acme_ext import builders, envs, launch
from acme_ext.agents.alphazero.config import AlphaZeroConfig
from acme_ext.agents.muzero.config import RootsConfig
from acme_ext.commands import cli, play, players, tournament
from acme_ext.envs import opponents
from acme_ext.envs.board_rules import rules_of
from acme_ext.errors import UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.players import RunPlayer, Thought, player_of
from acme_ext.launch.runs.schedule import Evaluation
from acme_ext.ops.search import SearchConfig

CONFIG = AlphaZeroConfig(
    hidden_sizes=(8,),
    state_size=8,
    batch_size=4,
    roots=2,
    search=SearchConfig(simulations=40, value_scale=1.0, value_range=0.1),
    replay=RootsConfig(length=9, min_size=4, samples_per_insert=4.0),
)


def test_ratings_are_those_that_make_the_outcomes_likeliest():
    # Of 1,000 games 10 / 11 are won: 400 points, but for the drawn one that is added.
    results = np.array([1] * 10_000 + [-1] * 1_000)
    ratings = tournament.elo({(0, 1): results, (1, 2): results, (0, 2): np.zeros(0)}, 3, anchor=2)
    np.testing.assert_allclose(ratings, [800, 400, 0], atol=8)
    np.testing.assert_allclose(tournament.elo({(0, 1): np.zeros(10)}, 2, 0), 0, atol=1e-6)


def test_a_match_is_of_both_sides_and_a_perfect_player_never_loses_it():
    game = "tic_tac_toe"
    perfect = opponents.make_opponents("minimax", game, 0)
    results = tournament.match(game, perfect, opponents.make_opponents("random", game, 1), 20, 0)
    assert results.min() == 0
    assert results.mean() > 0.6
    lost = tournament.match(game, opponents.make_opponents("random", game, 2), perfect, 20, 0)
    assert lost.max() == 0


def test_games_of_one_opening_are_drawn_together_for_the_intervals():
    outcomes, openings = {(0, 1): np.array([1, 1, -1, -1])}, [[3], [3], [5], [5]]
    drawn = tournament._resampled(outcomes, openings, (), np.random.default_rng(0))
    assert {tuple(each[0, 1]) for each in drawn} == {(1, 1, 1, 1), (-1,) * 4, (1, 1, -1, -1), (-1, -1, 1, 1)}


def test_games_without_an_opening_are_drawn_alone_unless_they_repeat():
    results = np.array([1, 1, -1, -1])
    outcomes = {(0, 1): results, (0, 2): results}
    drawn = list(tournament._resampled(outcomes, [[]] * 4, {(0, 1)}, np.random.default_rng(0)))
    assert {tuple(each[0, 1]) for each in drawn} == {(1, 1, -1, -1)}
    assert {each[0, 2].sum() for each in drawn} == {-4, -2, 0, 2, 4}


def test_a_game_that_ends_in_its_opening_has_its_outcome():
    ours = opponents.make_opponents("random", "tic_tac_toe", 0)
    results = tournament.match("tic_tac_toe", ours, opponents.make_opponents("random", "tic_tac_toe", 1), 20, 9)
    np.testing.assert_array_equal(results[::2], -results[1::2])  # the same game from the other side
    assert set(results) == {-1, 0, 1}


def test_a_match_tells_both_players_that_games_begin():
    class Told:
        def __init__(self):
            self.begun = []

        def begin(self, game):
            self.begun.append(game)

        def choose(self, games, histories, states):
            assert sorted(self.begun) == [0, 1]
            return [int(np.nonzero(states.legal_action_mask[n])[0][0]) for n in games]

    first, second = Told(), Told()
    tournament.match("tic_tac_toe", first, second, 2, 0)
    assert first.begun == second.begun == [0, 1]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["random"], "two players or more"),
        (["random", "random"], "each named once"),
        (["random", "mcts:10"], "needs at least one run directory"),
        (["random", "runs/none"], "'runs/none' is neither an opponent nor the directory of a run: .*minimax"),
    ],
)
def test_a_tournament_that_can_not_be_held_is_refused(names, said):
    with pytest.raises(UsageError, match=said):
        tournament.hold(names, 2, 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a run that has hardly learned, stopped once and resumed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acme_ext.launch.session.Session.draw_curve", lambda *_: None)
        experiment = Experiment(
            builders.AlphaZero(CONFIG),
            "board:tic_tac_toe",
            steps=60,
            num_envs=2,
            evaluation=Evaluation(every=0, final_episodes=2),
            run_dir=tmp_path_factory.mktemp("alphazero") / "run",
        )
        first = launch.run(experiment, quiet=True)
        second = launch.run(dataclasses.replace(experiment, steps=90), quiet=True)
        assert second.learner_steps > first.learner_steps > 0
    return str(experiment.run_dir)


@pytest.mark.release
def test_it_is_evaluated_against_whom_one_likes(run, capsys):
    arguments = ["evaluate", run, "--episodes", "4", "--env-set", "opponent=minimax"]
    assert cli.main(arguments) == 0
    assert "over 4 episodes" in capsys.readouterr().out
    assert cli.main([*arguments[:-1], "opponent=minmax"]) == 2
    assert "did you mean 'minimax'" in capsys.readouterr().err


def evaluated(capsys, run, opponent, *more):
    """Evaluates a run against an opponent; returns the exit code and what was printed and said."""
    code = cli.main(["evaluate", run, "--episodes", "4", "--env-set", f"opponent={opponent}", *more])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.release
def test_it_is_evaluated_against_the_agent_of_a_run(run, capsys, monkeypatch):
    asked = []
    think = RunPlayer.think
    monkeypatch.setattr(RunPlayer, "think", lambda self, states: asked.append((self, states)) or think(self, states))
    code, said, _ = evaluated(capsys, run, run)
    assert code == 0
    assert "over 4 episodes" in said
    # It moves in all games at once, where the agent that is evaluated, which is no player, is not to move.
    assert max(len(states.terminated) for _, states in asked) > 1
    assert all(not states.terminated.any() for _, states in asked)
    assert {player for player, _ in asked} == {player_of(run)}


@pytest.mark.release
def test_a_checkpoint_of_a_run_plays(run, capsys):
    saved = [path for path in (pathlib.Path(run) / "checkpoints").iterdir() if path.name.isdigit()]
    old, new = (RunPlayer(path) for path in sorted(saved))
    states = jax.vmap(rules_of("tic_tac_toe").init)(jax.random.split(jax.random.PRNGKey(0), 2))
    latest = RunPlayer(run).think(states)
    np.testing.assert_array_equal(new.think(states).prior, latest.prior)
    assert (old.think(states).prior != latest.prior).any()
    assert evaluated(capsys, run, saved[0])[0] == 0
    code, _, said = evaluated(capsys, run, pathlib.Path(run) / "checkpoints" / "7")
    assert code == 2
    assert "is neither an opponent nor the directory of a run" in said
    code = cli.main(["evaluate", str(pathlib.Path(run) / "checkpoints" / "7")])
    assert code == 2
    assert f"{run} has no checkpoint of 7 steps: its latest is of " in capsys.readouterr().err
    assert cli.main(["evaluate", str(saved[0]), "--best"]) == 2
    assert f"the best parameters belong to the run, {run}" in capsys.readouterr().err


@pytest.mark.release
def test_the_agent_of_a_run_that_can_not_play_is_refused(run, capsys, tmp_path, monkeypatch):
    code, _, said = evaluated(capsys, run, tmp_path)
    assert code == 2
    assert f"{tmp_path} is not a run directory" in said
    code, _, said = evaluated(capsys, run, tmp_path / "none")
    assert code == 2
    assert "is neither an opponent nor the directory of a run" in said
    with pytest.raises(UsageError, match=f"{run} is a run of tic_tac_toe: it can't play connect_four"):
        envs.make("board:connect_four", opponent=run)
    (tmp_path / "config.json").write_text('{"agent": "dqn", "environment": "gym:CartPole-v1", "run": {}}')
    code, _, said = evaluated(capsys, run, tmp_path)
    assert code == 2
    assert "is a run of gym:CartPole-v1: only the agents of board:GAME play" in said


@pytest.mark.release
def test_an_agent_learns_against_that_of_a_run_and_becomes_one_itself(run, tmp_path, monkeypatch):
    monkeypatch.setattr("acme_ext.launch.session.Session.draw_curve", lambda *_: None)
    learning = Experiment(
        builders.DQN(),
        "board:tic_tac_toe",
        steps=20,
        environment_options={"opponent": run},
        evaluation=Evaluation(every=0, final_episodes=2),
        run_dir=tmp_path / "dqn",
    )
    assert launch.run(learning, quiet=True).score is not None
    # Its own opponent is not needed, when it plays: it may be gone, or the run itself.
    described = json.loads((tmp_path / "dqn" / "config.json").read_text())
    described["environment_options"]["opponent"] = str(tmp_path / "dqn")
    (tmp_path / "dqn" / "config.json").write_text(json.dumps(described))
    against = opponents.make_opponents(str(tmp_path / "dqn"), "tic_tac_toe", 0)
    results = tournament.match("tic_tac_toe", against, opponents.make_opponents("minimax", "tic_tac_toe", 0), 4, 0)
    assert results.max() <= 0


@pytest.mark.release
def test_every_reply_is_played(run):
    """With all simulations that it needs the search alone is a good player; what counts is that all is counted."""
    first, second = players.against_every_reply(RunPlayer(run))
    # Who begins leaves eight replies, then six, four and two, some of which lead to the same positions.
    assert 20 < sum(first[:3]) < 8 * 6 * 4 * 2
    assert 60 < sum(second[:3]) < 9 * 7 * 5 * 3
    assert first.won > 2 * first.lost


class _Lowest:
    """Plays the first field that is free."""

    game = "tic_tac_toe"

    def think(self, states):
        return Thought(np.argmax(states.legal_action_mask, axis=1), *[np.zeros(0)] * 5)


@pytest.mark.release
def test_lost_games_are_told_by_their_moves():
    replies = players.against_every_reply(_Lowest())
    rows = [{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 3, 6}, {1, 4, 7}, {2, 5, 8}, {0, 4, 8}, {2, 4, 6}]
    for theirs, found in zip((1, 0), replies, strict=True):
        assert len(found.lines) == found.lost > 0
        for line in found.lines:
            moves = set(line[theirs::2])
            assert len(line) % 2 != theirs  # theirs is the last move
            assert any(row <= moves for row in rows)
            assert not any(row <= moves - {line[-1]} for row in rows)
            assert all(own == min(set(range(9)) - set(line[:i])) for i, own in enumerate(line) if i % 2 != theirs)
    said = players.describe_replies(replies, "tic_tac_toe").splitlines()
    assert len(said) == 1 + sum(found.lost for found in replies)
    assert said[0].startswith(f"first: {replies[0].won} won, {replies[0].drawn} drawn, {replies[0].lost} lost; second")
    assert "lost as second: a2 a1 b2 b1 c2" in said  # the first column of the second row, and so on


@pytest.mark.release
def test_a_person_plays_against_it_and_hears_of_illegal_moves(run, tmp_path):
    typed, shown = iter(["z9", "a1", "a1", *(f"{c}{r}" for c in "abc" for r in "123"), *["q"] * 9]), []
    outcome = play.play(RunPlayer(run), ask=lambda _: next(typed), say=shown.append)
    assert outcome in (1, 0, -1)
    assert any("'z9' is no legal move; these are: a1, b1" in line for line in shown)
    remark = next(text for text in shown if text.startswith("the agent plays ")).splitlines()
    assert "it expects" in remark[0]
    assert remark[1].split() == ["move", "visits", "prior", "value"]
    assert remark[2].split()[0] == remark[0].split()[3].rstrip(";")  # of those visited most
    player = RunPlayer(run)
    assert play.play(player, person_begins=False, ask=lambda _: "q", say=shown.append, trees=tmp_path / "trees") is None
    (drawn,) = (tmp_path / "trees").iterdir()
    assert drawn.name == "move-01.svg"
    texts = [element.text for element in ElementTree.parse(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0::2].count("the position") == 1
    assert set(texts[0::2]) - {"the position"} <= {f"{c}{r}" for c in "abc" for r in "123"}
    simulations = CONFIG.search.simulations
    assert len(texts) == 2 * (simulations + 1)  # each simulation adds a node
    assert f"{simulations + 1} " in texts[2 * texts[0::2].index("the position") + 1]


def test_a_chart_that_can_not_be_drawn_is_refused_first(tmp_path, capsys):
    assert cli.main(["tournament", "random", "runs/none", "-o", str(tmp_path / "chart.foo")]) == 2
    assert "chart.foo is not a name for a figure" in capsys.readouterr().err


@pytest.mark.release
def test_a_tournament_has_a_table_and_a_chart(run, tmp_path, capsys):
    chart = tmp_path / "charts" / "chart.png"
    arguments = ["tournament", run, "random", "--games", "6", "--opening-moves", "0", "-o", str(chart)]
    assert cli.main(arguments) == 0
    table = capsys.readouterr().out
    assert "| random | 0 | 0 to 0 |" in table
    assert table.index(run) < table.index("random")
    assert chart.stat().st_size > 1_000

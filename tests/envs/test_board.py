"""Board games: their rules beside open_spiel's, sides, opponents and what is refused."""

import subprocess
import sys

import jax
import numpy as np
import pyspiel
import pytest

from acme_ext import envs
from acme_ext.envs import opponents
from acme_ext.envs.board_rules import rules_of
from acme_ext.errors import RunError, UsageError

FIRST, LAST = 0, 2


@pytest.mark.parametrize(("game", "moves"), [("tic_tac_toe", 4), ("tic_tac_toe", 6), ("connect_four", 7)])
def test_games_that_their_opening_ends_are_drawn_again(game, moves):
    rng = np.random.default_rng(0)
    with envs.make(f"board:{game}", num_envs=4, opening_moves=moves) as environment:
        timestep = environment.reset()
        for _ in range(300):
            began = timestep.step_type == FIRST
            assert not (environment._seen.over & began).any()
            assert all(len(environment.histories[row]) >= moves for row in np.nonzero(began)[0])
            timestep = environment.step(legal_at_random(rng, timestep))
    with pytest.raises(UsageError, match="board:tic_tac_toe was over before the agent's first move"):
        envs.make("board:tic_tac_toe", num_envs=1, opening_moves=9).reset()


def legal_at_random(rng, timestep):
    return np.array([rng.choice(np.nonzero(mask)[0]) for mask in timestep.observation["action_mask"]])


@pytest.mark.parametrize(
    ("game", "games"),
    [("tic_tac_toe", 30), ("connect_four", 30), pytest.param("othello", 6, marks=pytest.mark.slow)],
)
def test_random_games_have_open_spiels_legal_actions_turns_and_outcomes(game, games):
    rng, spiel, finished = np.random.default_rng(0), pyspiel.load_game(opponents.SPIEL[game]), 0
    with envs.make(f"board:{game}", num_envs=4, self_play=True) as environment:
        timestep = environment.reset()
        states = [spiel.new_initial_state() for _ in range(4)]
        began = timestep.observation["player"].copy()
        while finished < games:
            for row, state in enumerate(states):
                if timestep.step_type[row] != LAST:
                    legal = np.nonzero(timestep.observation["action_mask"][row])[0]
                    assert legal.tolist() == state.legal_actions()
                    assert timestep.observation["player"][row] == began[row] ^ state.current_player()
            actions = legal_at_random(rng, timestep)
            was_last = timestep.step_type == LAST
            timestep = environment.step(actions)
            for row, state in enumerate(states):
                if was_last[row]:
                    assert timestep.step_type[row] == FIRST
                    states[row], began[row] = spiel.new_initial_state(), timestep.observation["player"][row]
                    continue
                mover = state.current_player()
                state.apply_action(int(actions[row]))
                assert (timestep.step_type[row] == LAST) == state.is_terminal()
                assert timestep.discount[row] == 1 - state.is_terminal()
                assert timestep.reward[row] == (state.returns()[mover] if state.is_terminal() else 0)
                finished += state.is_terminal()


def play(environment, rng, games):
    """Plays at random; returns the rewards at the ends of games, by row."""
    timestep, ends = environment.reset(), []
    while len(ends) < games:
        timestep = environment.step(legal_at_random(rng, timestep))
        ends += [(int(row), float(timestep.reward[row])) for row in np.nonzero(timestep.step_type == LAST)[0]]
    return ends


def test_the_agent_plays_both_sides_in_turn_from_the_same_openings():
    with envs.make("board:connect_four", num_envs=2, seed=3, evaluation=True, opening_moves=3) as environment:
        openings = []
        rng, timestep = np.random.default_rng(0), environment.reset()
        for _ in range(60):
            for row in np.nonzero(timestep.step_type == FIRST)[0]:
                openings.append((row, tuple(environment.histories[row][:3]), len(environment.histories[row])))
            timestep = environment.step(legal_at_random(rng, timestep))
    by_row = [[o for o in openings if o[0] == row] for row in (0, 1)]
    for first, second in zip(*by_row, strict=False):
        assert first[1] == second[1]
        assert {first[2], second[2]} == {3, 4}  # one of them after a reply
    assert by_row[0][0][2] != by_row[0][1][2]
    assert len({o[1] for o in openings}) > 2


def test_a_perfect_opponent_never_loses_and_beats_a_random_player():
    with envs.make("board:tic_tac_toe", num_envs=4, evaluation=True, opponent="minimax") as environment:
        rewards = [reward for _, reward in play(environment, np.random.default_rng(1), 60)]
    assert max(rewards) == 0
    assert np.mean(rewards) < -0.7


def test_a_searching_opponent_beats_a_random_player():
    with envs.make("board:connect_four", num_envs=4, opponent="mcts:50") as environment:
        assert np.mean([reward for _, reward in play(environment, np.random.default_rng(1), 20)]) < -0.8


def test_self_play_is_against_the_opponent_in_evaluation():
    with envs.make("board:tic_tac_toe", evaluation=True, self_play=True, num_envs=2) as environment:
        timestep = environment.reset()
        mine = timestep.observation["player"].copy()
        for _ in range(2):
            timestep = environment.step(legal_at_random(np.random.default_rng(0), timestep))
            np.testing.assert_array_equal(timestep.observation["player"], mine)


def test_the_packed_state_is_the_whole_of_it():
    rules = rules_of("connect_four")
    state = rules.step(rules.step(rules.init(jax.random.PRNGKey(1)), 3), 2)
    packed = rules.pack(state)
    assert packed.shape == (rules.nbytes,)
    jax.tree.map(np.testing.assert_array_equal, rules.unpack(packed), state)


def test_an_illegal_action_is_told():
    with envs.make("board:tic_tac_toe", self_play=True) as environment:
        environment.reset()
        environment.step([4])
        with pytest.raises(RunError, match="action 4 in game 0, which is not legal there"):
            environment.step([4])


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("board:tictactoe", {}, "did you mean 'board:tic_tac_toe'"),
        ("board:chess", {"opponent": "minimax"}, "'minimax' can't play chess"),
        ("board:go_9x9", {"opponent": "mcts:10"}, "can't play go_9x9: it plays tic_tac_toe"),
        ("board:connect_four", {"opponent": "mcts:0"}, "a number of simulations above 0"),
        ("board:connect_four", {"opponent": "mcts:²"}, "a number of simulations above 0"),
        ("board:connect_four", {"opponent": f"mcts:{2**31}"}, "a number of simulations above 0"),
        ("board:connect_four", {"opponent": ""}, "'' is neither an opponent nor the directory of a run"),
        ("board:connect_four", {"opponent": "~nobody_here/run"}, "~nobody_here/run can't be found"),
        ("board:connect_four", {"opponent": "x" * 300}, "can't be read: File name too long"),
        (
            "board:connect_four",
            {"opponent": f"py:{__name__}:Plain"},
            r"Plain, which can't be called with \(game, seed\)",
        ),
        ("board:connect_four", {"opponent": f"py:{__name__}:nobody"}, "which makes None: it must make an Opponent"),
        ("board:connect_four", {"opponent": "randm"}, "did you mean 'random'"),
        ("board:connect_four", {"opponent": "py:json:no_such"}, "json has no 'no_such'"),
        ("board:connect_four", {"opening_moves": -1}, "must not be negative"),
    ],
)
def test_what_can_not_be_is_told_in_a_sentence(name, options, said):
    with pytest.raises(UsageError, match=said), envs.make(name, **options) as environment:
        environment.reset()


class Plain:
    """Can't be an opponent, because it takes no arguments."""


def nobody(game, seed):
    return None


class Lefty:
    """Takes the first legal action."""

    def __init__(self, game, seed):
        self.games = 0

    def begin(self):
        self.games += 1

    def choose(self, history, legal):
        return int(np.argmax(legal))


def test_an_opponent_of_ones_own_plays():
    with envs.make("board:connect_four", opponent=f"py:{__name__}:Lefty") as environment:
        timestep = environment.reset()
        if environment.histories[0]:  # it began
            assert environment.histories[0] == [0]
        environment.step([6])
        assert environment.histories[0][-1] == 0
        assert timestep.observation["board"].shape == (1, 6, 7, 2)


class Fixed(Lefty):
    """Always takes the field 4."""

    def choose(self, history, legal):
        return 4


class Outside(Lefty):
    """Takes a field that doesn't exist."""

    def choose(self, history, legal):
        return 99


@pytest.mark.parametrize(("opponent", "action"), [("Fixed", 4), ("Outside", 99)])
def test_an_opponents_illegal_action_is_told(opponent, action):
    with envs.make("board:tic_tac_toe", num_envs=2, opponent=f"py:{__name__}:{opponent}") as environment:

        def play():
            environment.reset()  # the opponent begins in one of the two games
            environment.step([0, 0])

        said = rf"was given by its opponent the action {action} in game \d, which is not legal there"
        with pytest.raises(RunError, match=said):
            play()


def test_rules_may_be_asked_for_first_where_a_function_is_traced():
    """As in an inference server or a learner of a program, which have no environment."""
    code = """
import jax
from acme_ext.envs.board_rules import rules_of

def begin(key):
    return rules_of("tic_tac_toe").init(key)

jax.jit(begin)(jax.random.key(0))
state = jax.jit(lambda key: rules_of("tic_tac_toe").step(begin(key), 4))(jax.random.key(0))
assert not state.legal_action_mask[4]
"""
    subprocess.run([sys.executable, "-c", code], check=True)

"""Search: simulations and moves per second of agents that plan, self-play, and MuZero's learner; it requires the
extras search and board.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import acme.specs
import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from acme_ext import envs
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.variables import POLICY, VariableClient
from acme_ext.builders.alphazero import AlphaZero
from acme_ext.builders.muzero import MuZero, Planning
from acme_ext.envs.board_rules import rules_of
from acme_ext.envs.opponents import load_spiel
from acme_ext.ops import masking
from acme_ext.ops.search import SearchConfig, load_mctx
from acme_ext.specs import STATE
from acme_ext.types import Array, EnvironmentSpec, Params, Tree
from benchmarks.shared.measure import Contestant, Rate, rates
from benchmarks.shared.report import Figure, Reference, against, figure
from benchmarks.speed import cartpole
from benchmarks.speed.sections.acting import repeated
from benchmarks.speed.sections.learner import measure_resident
from benchmarks.speed.tables import FixedVariables

_GAME = "connect_four"
_OPENING = 4  # number of random moves before the positions that are searched
_GOAL = 0.9  # relative to bare mctx
_MOVES = 2_000  # goal for the moves per second of self-play, on two cores
_BATCHES = (1, 8, 32, 128)
_SELF_PLAY = (32, 128)  # games at the same time


class Setting(NamedTuple):
    """An agent, and a batch of states to search from."""

    name: str
    builder: Planning
    spec: EnvironmentSpec
    timestep: dm_env.TimeStep  # [B, ...]


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures search compared with bare mctx, self-play, and MuZero's learner compared with its bare step."""
    figures = []
    for num_envs in _BATCHES:
        for setting in settings(num_envs):
            figures += measure(setting, seconds / 2, rounds)  # there are many settings
    figures += [self_play(AlphaZero(), num_envs, seconds, rounds) for num_envs in _SELF_PLAY]
    return [*figures, measure_resident("search", MuZero(), cartpole.SPEC, seconds, rounds)]


def settings(num_envs: int) -> list[Setting]:
    """Returns the settings: learned models with an MLP and with a grid, and the rules of a game."""
    rng = np.random.default_rng(0)
    first = dm_env.TimeStep(np.zeros(num_envs, np.uint8), np.zeros(num_envs, np.float32), np.ones(num_envs), None)
    found = [
        Setting(
            f"MuZero, {name}",
            MuZero(),
            spec,
            first._replace(observation=rng.random((num_envs, *spec.observations.shape), np.float32)),
        )
        for name, spec in (("MLP", cartpole.SPEC), ("grid 10x10x4", _GRID))
    ]
    builder = AlphaZero().for_environment(f"board:{_GAME}")
    environment = _board(num_envs, opening_moves=_OPENING)
    spec, timestep = envs.make_spec(environment), environment.reset()
    environment.close()
    return [*found, Setting(f"AlphaZero, the rules of {_GAME}", builder, spec, timestep)]


def measure(setting: Setting, seconds: float, rounds: int) -> list[Figure]:
    """Measures an actor's search, including the transfer of its actions, compared with mctx alone."""
    config: SearchConfig = setting.builder.config.search
    measured = rates(_contestants(setting), seconds, rounds)
    figures = []
    for unit, count in (("simulations/s", config.simulations), ("moves/s", 1)):
        ours = _times(measured["ours"], count)
        references = [against(ours, "bare mctx, the same model", _times(measured["bare"], count), _GOAL)]
        if "open_spiel" in measured:
            name = f"open_spiel's MCTS in C++, {config.simulations} random games a move, no network"
            references.append(against(ours, name, _times(measured["open_spiel"], count)))
        size = len(setting.timestep.step_type)
        name = f"{setting.name}, {config.simulations} simulations, B={size}: {unit.partition('/')[0]}"
        figures.append(figure("search", name, unit, ours, references))
    return figures


def self_play(builder: AlphaZero, num_envs: int, seconds: float, rounds: int) -> Figure:
    """Measures the loop of an actor that plays both sides and writes nothing, compared with its search alone."""
    environment = _board(num_envs)
    agent = builder.for_environment(environment.name).make_agent(envs.make_spec(environment))
    source = VariableClient(FixedVariables.of(agent))
    actor = agent.make_actor(source, jax.random.key(0), num_envs=num_envs)
    loop = EnvironmentLoop(environment, actor)
    alone = LocalInference(agent.policy, source, jax.random.key(0), num_envs)
    timestep = environment.reset()

    def search() -> int:
        alone.step(0, timestep)
        return num_envs

    # A step that begins a game is not a move.
    contestants = {"loop": repeated(loop.step, times=1), "search": repeated(search, times=1)}
    measured = rates(contestants, seconds, rounds)
    environment.close()
    ours = measured["loop"]
    name = f"self-play of {_GAME}, {builder.config.search.simulations} simulations, {num_envs} games: moves"
    wanted = Reference("the goal", _MOVES, ours.per_second / _MOVES, 1.0, source="computed")
    return figure("search", name, "moves/s", ours, [wanted, against(ours, "its search alone", measured["search"])])


def _board(num_envs: int, **options: Any) -> Any:
    return envs.make(f"board:{_GAME}", num_envs=num_envs, self_play=True, game_state=True, **options)


def _times(rate: Rate, count: int) -> Rate:
    """Returns the rate of parts, if every unit has `count` parts."""
    return Rate(tuple(count * value for value in rate.rounds), None if rate.cpu_us is None else rate.cpu_us / count)


def _contestants(setting: Setting) -> dict[str, Contestant]:
    """Returns contestants that search from a batch; units are moves."""
    agent = setting.builder.make_agent(setting.spec)
    size, source = len(setting.timestep.step_type), FixedVariables.of(agent)
    ours = LocalInference(agent.policy, VariableClient(source), jax.random.key(0), size)
    (params,) = source.get_variables([POLICY])
    of_rules = isinstance(setting.builder, AlphaZero)
    act, position = (_by_rules if of_rules else _by_model)(setting)
    contestants = {"ours": _searching(lambda: ours.step(0, setting.timestep), size)}
    keys, compiled = itertools.cycle(jax.random.split(jax.random.key(0), 97)), jax.jit(act)
    contestants["bare"] = _searching(lambda: np.asarray(compiled(params, next(keys), position)), size)
    if of_rules:
        contestants["open_spiel"] = _open_spiel(setting.builder.config.search.simulations)
    return contestants


def _searching(step: Callable[[], Any], moves: int) -> Contestant:
    def work() -> int:
        step()
        return moves

    return Contestant(work, prepare=work)


def _by_model(setting: Setting, noise: float = 1.0) -> tuple[Callable, Tree]:
    """Returns MuZero's search with bare mctx, `(params, key, observation [B, ...]) -> actions [B]`, and observations.

    Args:
        setting: the setting.
        noise: scale of the noise at the root; 1 for noise, 0 for none.
    """
    mctx = load_mctx()
    network, config = setting.builder.make_networks(setting.spec), setting.builder.config
    support = config.support

    def recurrent(params: Params, key: Array, action: Array, state: Tree) -> tuple[Any, Tree]:
        del key
        reward, state = network.dynamics(params, state, action)
        logits, value = network.predict(params, state)
        said = {"reward": support.mean(reward), "discount": jnp.full(len(action), config.discount)}
        return mctx.RecurrentFnOutput(**said, prior_logits=logits, value=support.mean(value)), state

    def act(params: Params, key: Array, observation: Tree) -> Array:
        state = network.represent(params, observation)
        logits, value = network.predict(params, state)
        root = mctx.RootFnOutput(prior_logits=logits, value=support.mean(value), embedding=state)
        return _gumbel(config.search, params, key, root, recurrent, None, noise)

    return act, jnp.asarray(setting.timestep.observation)


def _by_rules(setting: Setting, noise: float = 1.0) -> tuple[Callable, Tree]:
    """Returns AlphaZero's search with bare mctx, `(params, key, pgx's states [B, ...]) -> actions [B]`, and states.

    The arguments are the same as for `_by_model`.
    """
    mctx = load_mctx()
    game, network = setting.builder.make_networks(setting.spec)
    config, rules = setting.builder.config, rules_of(game)
    support = config.support

    def evaluate(params: Params, states: Any) -> tuple[Array, Array]:
        logits, value = network.predict(params, network.represent(params, states.observation))
        return masking.masked(logits, states.legal_action_mask), support.mean(value)

    def recurrent(params: Params, key: Array, action: Array, states: Any) -> tuple[Any, Any]:
        del key
        after = jax.vmap(rules.step)(states, action)
        reward = after.rewards[jnp.arange(len(action)), states.current_player]
        logits, value = evaluate(params, after)
        discount = jnp.where(after.terminated, 0.0, -config.discount)
        value = jnp.where(after.terminated, 0.0, value)
        said = {"reward": reward, "discount": discount, "prior_logits": logits, "value": value}
        return mctx.RecurrentFnOutput(**said), after

    def act(params: Params, key: Array, states: Any) -> Array:
        logits, value = evaluate(params, states)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=states)
        return _gumbel(config.search, params, key, root, recurrent, ~states.legal_action_mask, noise)

    return act, jax.jit(jax.vmap(rules.unpack))(setting.timestep.observation[STATE])


def _gumbel(
    config: SearchConfig, params: Params, key: Array, root: Any, recurrent: Callable, illegal: Any, noise: float
) -> Array:
    mctx = load_mctx()
    options = {"value_scale": config.value_scale, "maxvisit_init": config.value_visits, "epsilon": config.value_range}
    return mctx.gumbel_muzero_policy(
        params,
        key,
        root,
        recurrent,
        config.simulations,
        invalid_actions=illegal,
        qtransform=lambda *tree: mctx.qtransform_completed_by_mix_value(*tree, **options),
        max_num_considered_actions=config.considered_actions,
        gumbel_scale=noise,
    ).action


def _open_spiel(simulations: int) -> Contestant:
    """Returns a contestant with open_spiel's search, one game at a time; its units are moves."""
    import pyspiel

    game = load_spiel(_GAME)
    bot = pyspiel.MCTSBot(game, pyspiel.RandomRolloutEvaluator(1, 0), 2.0, simulations, 1_000, False, 0, False)
    state = game.new_initial_state()
    for action in range(_OPENING):
        state.apply_action(action)
    return repeated(lambda: bot.step(state) * 0 + 1)


_GRID = acme.specs.EnvironmentSpec(
    observations=specs.BoundedArray((10, 10, 4), np.float32, 0.0, 1.0, "observation"),
    actions=specs.DiscreteArray(6, np.int32, "action"),
    rewards=cartpole.SPEC.rewards,
    discounts=cartpole.SPEC.discounts,
)
"""A spec with the sizes of MinAtar's games."""

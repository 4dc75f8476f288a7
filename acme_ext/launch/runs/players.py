"""Lets the agents of runs play board games, in many games at once."""

import functools
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Context
from acme_ext.config.values import display_name
from acme_ext.envs.board_rules import RANDOM, rules_of
from acme_ext.errors import UsageError
from acme_ext.launch.runs.evaluation import place_of
from acme_ext.launch.runs.trained import load
from acme_ext.specs import ACTION_MASK, PLAYER, STATE
from acme_ext.types import Array
from acme_ext.utils import compiling

_BATCH = 32  # positions in each call; a fixed number, so that only one program is compiled


class Thought(NamedTuple):
    """An agent's actions in N positions, and the results of its search if it plans."""

    action: np.ndarray  # [N]
    value: np.ndarray  # [N] the search's value for the player to move; 0 if the agent doesn't plan
    visits: np.ndarray  # [N, A] fractions of the search's visits; this and the next fields: empty without planning
    prior: np.ndarray  # [N, A] the network's policy
    action_values: np.ndarray  # [N, A] values of the actions that the search visited
    nodes: np.ndarray  # [N, M, 4] nodes of the search trees, see `ops.search.nodes_of`


class RunPlayer:
    """A player that acts as a run's agent does in evaluation.

    Args:
        path: the run directory, or one of its checkpoints.
    """

    def __init__(self, path: str | os.PathLike[str]):
        where = place_of(path)[0].read_config()["environment"]
        if not isinstance(where, str) or not where.startswith("board:"):
            raise UsageError(f"{path} is a run of {display_name(where)}: only the agents of board:GAME play.")
        # The opponent from training has no effect here, and it may be a run that has been deleted.
        loaded = load(path, environment_options={"opponent": RANDOM}).loaded
        self.name, self.game = str(path), where.removeprefix("board:")
        self._fields = set(loaded.spec.observations)
        agent = loaded.agent
        self.plans = loaded.experiment.builder.searches
        self._params = loaded.params
        policy, rules = agent.evaluation_policy, rules_of(self.game)
        if jax.tree.leaves(policy.init_state(1)):
            raise UsageError(f"the agent of {path} has a memory: it can't play from positions alone.")

        def act(params: Any, states: Any) -> Any:
            observation = {"board": states.observation, ACTION_MASK: states.legal_action_mask}
            if PLAYER in self._fields:
                observation[PLAYER] = states.current_player
            if STATE in self._fields:
                observation[STATE] = jax.vmap(rules.pack)(states)
            zeros = jnp.zeros(_BATCH)
            context = Context(jax.random.split(jax.random.key(0), _BATCH), jnp.int32(0), zeros, zeros)
            action, _, extras = policy.apply(params, context, observation, policy.init_state(_BATCH))
            nothing = jnp.zeros((_BATCH, 0))
            searched = [getattr(extras, name, nothing) for name in ("visits", "prior", "action_values", "nodes")]
            return action, getattr(extras, "value", zeros), *searched

        self._act = compiling.jit(act)

    def think(self, states: Any) -> Thought:
        """Returns the agent's actions in pgx states `[N, ...]`, for any N."""
        count = len(states.terminated)
        parts = []
        for start in range(0, count, _BATCH):
            part = jax.tree.map(lambda x, start=start: _padded(x[start : start + _BATCH]), states)
            parts.append(jax.tree.map(np.asarray, self._act(self._params, part)))
        return Thought(*(np.concatenate(leaves)[:count] for leaves in zip(*parts, strict=True)))


def _padded(x: Array) -> Array:
    return jnp.concatenate([x, jnp.broadcast_to(x[:1], (_BATCH - len(x), *x.shape[1:]))]) if len(x) < _BATCH else x


def player_of(path: str | os.PathLike[str]) -> RunPlayer:
    """Returns a player with a run's newest checkpoint.

    If the run has saved nothing since the last call, returns the same player, which is already compiled.
    """
    rundir, _ = place_of(path)
    saved = rundir.checkpoints.stat().st_mtime_ns if rundir.checkpoints.is_dir() else 0
    return _made(os.fspath(path), os.path.realpath(path), saved)


@functools.lru_cache(maxsize=4)
def _made(name: str, place: str, saved: int) -> RunPlayer:
    del place, saved
    return RunPlayer(name)

"""The registry of environments by name, `family:rest`; a family's backend is imported on first use."""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from acme_ext.config.fields import check_accepts, check_value
from acme_ext.config.values import Named, importable_name, load_object
from acme_ext.errors import UsageError, nearest
from acme_ext.utils import install

if TYPE_CHECKING:
    import dm_env

    from acme_ext.envs.backend import Backend
    from acme_ext.envs.base import BatchedEnvironment
    from acme_ext.envs.functional import FunctionalEnvironment
    from acme_ext.interfaces import EnvironmentSpec

    Factory = Callable[[int, bool], dm_env.Environment | FunctionalEnvironment]
else:
    Factory = Callable  # without names that are not imported: Python 3.11 and newer look them up in a class's types
"""`(seed, evaluation) -> environment`: makes one environment, with a seed in [0, 2**31)."""


@dataclass(frozen=True)
class Family:
    """A family of environments: its entry in `acme-ext list`, its backend and its requirements."""

    name: str
    form: str  # of a name after the prefix, such as NAME
    instance: str  # a name after the prefix
    backend: str  # the class, in acme_ext.envs.NAME, or as module:class
    needs: tuple[str, ...] = ()  # top-level modules that must be installed
    extra: str | None = None  # acme_ext's extra that installs them; None if they are always installed

    @property
    def start(self) -> str:
        """The prefix of its environments' names: `gym:`, or `jax:brax/` for a family named `jax:brax`."""
        return self.name + ("/" if ":" in self.name else ":")

    @property
    def pattern(self) -> str:
        return self.start + self.form

    @property
    def example(self) -> str:
        return self.start + self.instance

    @property
    def summary(self) -> str:
        return _SUMMARIES.get(self.name) or f"of {self.backend.partition(':')[0]}"


_FAMILIES = (
    Family("gym", "NAME", "CartPole-v1", "Gym", ("gymnasium",)),
    Family("atari", "GAME", "Pong", "Atari", ("ale_py", "cv2"), "atari"),
    Family("dmc", "DOMAIN/TASK", "cartpole/swingup", "Dmc", ("dm_control",), "dmc"),
    Family("bsuite", "ID", "catch/0", "Bsuite", ("bsuite",), "bsuite"),
    Family("minatar", "GAME", "breakout", "MinAtar", ("minatar",), "minatar"),
    Family("minigrid", "NAME", "DoorKey-8x8", "MiniGrid", ("minigrid",), "minigrid"),
    Family("explore", "NAME", "key_door", "Explore"),
    Family("envpool", "NAME", "Pong-v5", "EnvPool", ("envpool",), "envpool"),
    Family("board", "GAME", "connect_four", "Board", ("pgx",), "board"),
    Family("jax", "NAME", "CartPole-v1", "acme_ext.envs.jax_games:Jax", ("gymnax", "pgx"), "compiled"),
    Family("jax:brax", "NAME", "ant", "acme_ext.envs.jax_brax:Brax", ("brax",), "brax"),
    Family("jax:jumanji", "NAME", "Snake-v1", "acme_ext.envs.jax_jumanji:Jumanji", ("jumanji",), "jumanji"),
    Family("jax:navix", "NAME", "DoorKey-8x8", "acme_ext.envs.jax_navix:Navix", ("navix",), "navix"),
)

_SUMMARIES = {
    "gym": "Gymnasium's environments, and those a module registers (gym:MODULE:NAME)",
    "atari": "Atari 2600 games, preprocessed as for the Nature DQN; raw rewards",
    "dmc": "The DeepMind control suite, from its state as one vector",
    "bsuite": "The experiments of the behaviour suite",
    "minatar": "MinAtar's games, 10x10 grids of bool",
    "minigrid": "MiniGrid's grid worlds, as one-hot grids or images, without the mission's text; "
    "gym:MiniGrid-NAME-v0 is the same environment, and minigrid:NAME-v1 is version 1",
    "explore": "Small tasks with sparse rewards: chain, key_door, random_coin, disco_maze",
    "envpool": "EnvPool's environments, batched natively in threads",
    "board": "Board games of two players, against an opponent or by self-play",
    "jax": "Environments written in JAX, stepped together by one compiled call",
    "jax:brax": "Brax's robots, continuous actions",
    "jax:jumanji": "Jumanji's puzzles, packing and routing, with masks of legal actions",
    "jax:navix": "Navix's grid worlds, MiniGrid's in JAX, as one-hot grids or images",
}
"""What `acme-ext list` says of each family."""


def families() -> tuple[Family, ...]:
    """Returns all families of environments, including those of other packages, without importing their backends."""
    return (*_FAMILIES, *_installed())


def _installed() -> list[Family]:
    """Returns the families that packages register as entry points of the group `acme_ext.environments`."""
    return [
        Family(point.name, "NAME", "NAME", point.value)
        for point in importlib.metadata.entry_points(group="acme_ext.environments")
    ]


def check_environment(environment: str | Factory, /, **options: Any) -> None:
    """Raises UsageError if `environment` can't be made with these options; makes nothing.

    The message says what is wrong: the family doesn't exist, its backend is not installed, the environment doesn't
    exist, it has no such option, or a value has the wrong type. It suggests similar names.
    """
    environment = _named_factory(environment) or environment
    if isinstance(environment, str):
        _resolve(environment, options)
    else:
        _factory(environment, options)


def make(
    environment: str | Factory, *, num_envs: int = 1, seed: int = 0, evaluation: bool = False, **options: Any
) -> "BatchedEnvironment":
    """Makes a batch of environments.

    Args:
      environment: a name, `family:rest`; or a function `factory(seed, evaluation, **options)` that returns a dm_env or
        a `FunctionalEnvironment`; or the name of such a function, `py:module:name`.
      num_envs: number of environments in the batch.
      seed: random seed; each environment has a different random stream.
      evaluation: whether they are for evaluation. Then their seeds differ from training's, and episodes are full games.
      **options: options of the family or of the factory.
    """
    from acme_ext.envs.backend import environment_seed
    from acme_ext.envs.functional import FunctionalBatch, FunctionalEnvironment
    from acme_ext.envs.vector import VectorEnvironment

    if num_envs < 1:
        raise UsageError(f"a batch needs at least 1 environment, not {num_envs}.")
    _check_seed(seed)
    batch = None
    given, environment = environment, _named_factory(environment) or environment
    if isinstance(environment, str):
        backend, name, options = _resolve(environment, options)
        batch = backend.load_batch(name, num_envs, environment_seed(seed, evaluation), evaluation, **options)
        load = _loader(backend, name, options)
    else:
        load = _factory(environment, options)
    if batch is None:
        first: Any = load(environment_seed(seed, evaluation), evaluation)
        if isinstance(first, FunctionalEnvironment):
            batch = FunctionalBatch(first, num_envs, environment_seed(seed, evaluation))
        else:
            with contextlib.ExitStack() as stack:  # closes those that were made, if one can't be or doesn't fit
                made: list[Any] = []
                for i in range(num_envs):
                    made.append(load(environment_seed(seed, evaluation, i), evaluation) if i else first)
                    stack.callback(_close, made[-1])
                batch = VectorEnvironment(made)
                stack.pop_all()
    batch.name = name_of(given)
    return batch


def make_functional(
    environment: str | Factory, *, seed: int = 0, evaluation: bool = False, **options: Any
) -> "FunctionalEnvironment | None":
    """Makes an environment as pure functions in JAX; None if it is not written in JAX.

    The arguments are the same as for `make`.
    """
    import dm_env

    from acme_ext.envs.backend import environment_seed
    from acme_ext.envs.functional import FunctionalEnvironment

    _check_seed(seed)
    environment = _named_factory(environment) or environment
    if isinstance(environment, str):
        backend, name, options = _resolve(environment, options)
        return backend.functional(name, evaluation, **options)
    made: Any = _factory(environment, options)(environment_seed(seed, evaluation), evaluation)
    if isinstance(made, FunctionalEnvironment):
        return made
    if isinstance(made, dm_env.Environment):
        made.close()
    return None


def name_of(environment: str | Factory) -> str:
    """Returns an environment's name; for a function, `py:module:name` or the name that the user gave it."""
    if isinstance(environment, str):
        return environment
    if isinstance(environment, Named):
        return environment.name
    if isinstance(environment, functools.partial):
        return name_of(environment.func)
    name = importable_name(environment)
    return f"py:{name}" if name else getattr(environment, "__qualname__", type(environment).__name__)


def make_single(
    environment: str | Factory, *, seed: int = 0, evaluation: bool = False, **options: Any
) -> "dm_env.Environment":
    """Makes one ordinary dm_env in single precision; the arguments are the same as for `make`."""
    from acme_ext.envs.backend import environment_seed
    from acme_ext.envs.functional import FunctionalBatch, FunctionalEnvironment
    from acme_ext.envs.single import Unbatched, single_precision
    from acme_ext.envs.specs import check_dm_env

    _check_seed(seed)
    environment = _named_factory(environment) or environment
    load = _loader(*_resolve(environment, options)) if isinstance(environment, str) else _factory(environment, options)
    made = load(environment_seed(seed, evaluation), evaluation)
    if isinstance(made, FunctionalEnvironment):
        return Unbatched(FunctionalBatch(made, 1, environment_seed(seed, evaluation)))
    check_dm_env(made)
    return single_precision(made)


def _close(made: Any) -> None:
    """Closes what a factory made, if it is an environment."""
    if hasattr(made, "close"):
        made.close()


def make_spec(environment: "dm_env.Environment | BatchedEnvironment") -> "EnvironmentSpec":
    """Returns the specs of one environment, without a batch axis, for a dm_env or a batch."""
    from acme_ext.interfaces import EnvironmentSpec

    return EnvironmentSpec(
        observations=environment.observation_spec(),
        actions=environment.action_spec(),
        rewards=environment.reward_spec(),
        discounts=environment.discount_spec(),
    )


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise UsageError(f"a seed is a whole number from 0, not {seed}.")


def _loader(backend: "Backend", name: str, options: Mapping[str, Any]) -> Factory:
    return lambda seed, evaluation: backend.load(name, seed, evaluation, **options)


def check_names(options: Iterable[str], *more: str) -> None:
    """Raises UsageError if an environment's option has the name of an argument that the run itself gives.

    Args:
        options: the options' names.
        *more: more names that are not allowed.
    """
    if wrong := [option for option in options if not isinstance(option, str)]:
        raise UsageError(f"the name of an environment's option is {wrong[0]!r}: it must be a text.")
    if taken := sorted({"environment", "num_envs", "seed", "evaluation", *more} & set(options)):
        raise UsageError(f"an environment can't have an option {taken[0]!r}: the run itself sets it.")


def check_factory(environment: Any) -> None:
    """Raises UsageError if an environment is not a name or a function; the message says what to pass instead."""
    if isinstance(environment, str):
        return
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(environment).__mro__}
    if "gymnasium.core.Env" in kinds or "gym.core.Env" in kinds:
        spec = getattr(environment, "spec", None)
        named = f"its name, {f'gym:{spec.id}'!r}, or " if spec else ""
        raise UsageError(
            f"the environment is a {type(environment).__name__} of gymnasium: a run makes its environments itself, so "
            f"give {named}a function factory(seed, evaluation) that returns a GymEnvironment (of acme_ext.envs.gym) of "
            "a new one."
        )
    if "dm_env._environment.Environment" in kinds or not callable(environment):
        raise UsageError(
            f"the environment is a {type(environment).__name__}: a run makes its environments itself, so give a name "
            "such as 'gym:CartPole-v1', or a function factory(seed, evaluation) that returns a new dm_env.Environment."
        )


def _named_factory(environment: str | Factory) -> Factory | None:
    """Returns the function that `py:module:name` names; None for any other environment."""
    prefix, _, name = environment.partition(":") if isinstance(environment, str) else ("", "", "")
    if prefix != "py":
        return None
    factory: Any = load_object(name)
    if not callable(factory):
        raise UsageError(f"{environment!r} is {factory!r}: it must be a function of a seed and of whether to evaluate.")
    return cast(Factory, factory)


def _factory(factory: Factory, options: Mapping[str, Any]) -> Factory:
    check_factory(factory)
    check_names(options)
    check_accepts("the environment", factory, "seed", "evaluation", **options)
    return functools.partial(factory, **options) if options else factory


def _resolve(environment: str, options: Mapping[str, Any]) -> "tuple[Backend, str, dict[str, Any]]":
    """Checks an environment's name and options; returns its backend, its canonical name and the options.

    A list becomes a tuple if the default is one, because a run's config, which is JSON, has no tuples.
    """
    from acme_ext.envs.backend import Backend

    check_names(options, "name")
    environment = re.sub(r"^gym:(minigrid:)?(?=MiniGrid-)", "minigrid:", environment)  # by Gymnasium's ids too
    prefix, colon, _ = environment.partition(":")
    known = families()
    meant = [family for family in known if environment.startswith(family.start)]
    if not meant:
        what = f"no family of environments {prefix!r}" if colon else f"{environment!r} names no family of environments"
        raise UsageError(
            f"{what}; a name is like {_FAMILIES[0].example!r}, or py:module:function for your own: "
            f"{nearest(prefix, [family.name for family in known if ':' not in family.name])}"
        )
    family = max(meant, key=lambda each: len(each.start))
    rest = environment.removeprefix(family.start)
    missing = [module for module in family.needs if importlib.util.find_spec(module) is None]
    if missing:
        command = install.command(family.extra)
        raise UsageError(f"{environment!r} needs {', '.join(missing)}, not installed here: {command}")
    where = family.backend if ":" in family.backend else f"acme_ext.envs.{family.name}:{family.backend}"
    made_by: Any = load_object(where)
    if not (isinstance(made_by, type) and issubclass(made_by, Backend)):
        raise UsageError(
            f"the family {family.name!r} is {where}: it must be a subclass of acme_ext.envs.backend.Backend."
        )
    backend = made_by()
    name = backend.canonical(rest)
    names = backend.names()
    if name not in names:
        others = [f"{family.start}{other}" for other in backend.alternatives(rest)]
        others += [each.example for each in known if each is not family and each.start.startswith(family.start)]
        raise UsageError(f"no environment {environment!r}; {nearest(environment, others)}")
    valid, fitted = backend.options(name), dict(options)
    for key, value in options.items():
        if key not in valid:
            hint = nearest(key, valid) if valid else "it takes none."
            raise UsageError(f"{environment!r} has no option {key!r}; {hint}")
        hint = backend.types.get(key, Any if valid[key] is None else type(valid[key]))
        fitted[key] = check_value(f"the option {key!r} of {environment!r}", value, hint)
    return backend, name, fitted

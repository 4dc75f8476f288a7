"""Settings of JAX and XLA that must be made before their first use; `import acme_ext` makes them.

XLA reads `XLA_FLAGS` only once, and an environment library may use XLA when it is imported.
"""

import gc
import importlib.abc
import importlib.util
import os
import re
import sys
import warnings
from importlib import metadata
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# In the old runtime of jaxlib 0.5.3, the process crashes when it compiles a product whose second factor comes from a
# loop, as in the gradient of a recurrent network: the oneDNN pass asserts that the loop can be evaluated at compile
# time. DQN's learner is equally fast without the pass.
if "xla_disable_hlo_passes" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_disable_hlo_passes=onednn-contraction-rewriter"

_FOLDER, _USE = "JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"


def _leave_compiled_programs() -> None:
    """Disables JAX's compilation cache in versions of jaxlib where it can change results.

    With jaxlib 0.5.3, programs for the newer CPU runtime can lose their constants when they are read from the cache.
    Compiled runs of Agent57 show it: with a cached program, only the first policy is ever selected. With
    jaxlib 0.6.2, 0.7.2 and 0.12.0, all such runs agree.
    """
    try:
        version = metadata.version("jaxlib")
    except metadata.PackageNotFoundError:
        return
    if _USE in os.environ or tuple(map(int, re.findall(r"\d+", version)[:3])) >= (0, 6, 2):
        return
    if os.environ.get(_FOLDER):
        warnings.warn(
            f"{_FOLDER} is not used: a program that jaxlib {version} reads from it can compute something else on the "
            f"CPU. Set {_USE}=1 to use it all the same.",
            stacklevel=2,
        )
    os.environ[_USE] = "0"  # for JAX, and for the processes that this one starts
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_compilation_cache", False)


_leave_compiled_programs()


class _TreesUncollected(importlib.abc.MetaPathFinder):
    """Pauses garbage collection while JAX creates its pytree registries.

    In jaxlib 0.5.3, a collection between their allocation and initialization crashes the process. Whether one happens
    there depends on all earlier imports.
    """

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "jax._src.tree_util":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                collects = gc.isenabled()
                gc.disable()
                try:
                    execute(module)
                finally:
                    if collects:
                        gc.enable()

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010
        return spec


if "jax" not in sys.modules:
    sys.meta_path.insert(0, _TreesUncollected())

"""acme_ext: composable reinforcement-learning agents in JAX, on Acme, Reverb and Launchpad where they install.

Importing this package imports nothing heavy; start from `acme_ext.builders` (the agents), `acme_ext.launch`
(running an experiment) and `acme_ext.envs` (environments by name).
"""

import sys

if sys.platform == "win32":
    raise ImportError(
        "acme_ext runs on Linux and macOS. On Windows, run it in WSL: `wsl --install`, then install it there."
    )

from acme_ext.utils import install, libpython
from acme_ext.utils import xla as _xla  # noqa: F401

__version__ = "0.3.0"

if install.has_reverb_wheels():
    libpython.load()

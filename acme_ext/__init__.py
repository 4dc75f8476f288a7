"""acme_ext: composable reinforcement-learning agents on Acme, Reverb, Launchpad and JAX.

Importing this package imports nothing heavy; start from `acme_ext.builders` (the agents), `acme_ext.launch`
(running an experiment) and `acme_ext.envs` (environments by name).
"""

import sys

from acme_ext.utils import install, libpython
from acme_ext.utils import xla as _xla  # noqa: F401

__version__ = "0.3.0"

if sys.version_info[:2] == install.REVERB_PYTHON:
    libpython.load()

"""Hides Launchpad, and Acme, which imports it, from a Python that has this folder in its path."""

import sys

for name in ("launchpad", "courier", "acme"):
    sys.modules[name] = None  # type: ignore[assignment]

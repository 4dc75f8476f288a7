"""How this package is installed, and the commands that install more of it."""

import importlib.util
import pathlib
import platform
import shlex
import sys

_PACKAGE = pathlib.Path(__file__).parents[1]
_CHECKOUT = _PACKAGE.parent

CONSTRAINTS = _PACKAGE / "constraints.txt"
"""The versions that are tested where Reverb has wheels, for pip's `--constraint`."""

REVERB_PYTHON = (3, 10)
"""The only Python version that Reverb, Launchpad and Acme have wheels for."""


def has_reverb_wheels() -> bool:
    """Whether Reverb, Launchpad and Acme have wheels for this Python and this machine, and so are installed with it."""
    return sys.version_info[:2] == REVERB_PYTHON and (sys.platform, platform.machine()) == ("linux", "x86_64")


def checkout() -> pathlib.Path | None:
    """Returns the folder of the checkout that this package is imported from, or None if it is installed."""
    return _CHECKOUT if (_CHECKOUT / "scripts/bootstrap").is_file() else None


def command(extra: str | None = None) -> str:
    """Returns the command that installs the package with an extra, in the same way as it is installed now.

    In a checkout's own environment, this is a make command, which uses the locked versions and verifies their hashes.
    """
    source = checkout()
    if source and pathlib.Path(sys.prefix) == source / ".venv":
        return f"make venv EXTRAS={extra}" if extra else "make clean venv"
    pip = ["pip"] if importlib.util.find_spec("pip") else ["uv", "pip"]
    extras = f"[{extra}]" if extra else ""
    tested = ["-c", str(CONSTRAINTS)] if has_reverb_wheels() else []
    target = ["-e", f"{source}{extras}"] if source else [f"acme-ext{extras}"]
    return shlex.join([*pip, "install", *tested, *target])

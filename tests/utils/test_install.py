"""What to type to install more, for each way in which the package may be installed."""

import importlib.util
import sys

import pytest

from acme_ext.utils import install


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """The package as a wheel puts it into an environment with pip."""
    monkeypatch.setattr(install, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "pip")
    return tmp_path


def test_a_wheel_is_installed_by_its_name_with_the_constraints_that_it_brings(wheel):
    assert install.command("atari") == f"pip install -c {install.CONSTRAINTS} 'acme-ext[atari]'"
    assert install.command() == f"pip install -c {install.CONSTRAINTS} acme-ext"
    assert install.CONSTRAINTS.is_file()


def test_without_pip_it_is_uvs(wheel, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert install.command("ray").startswith("uv pip install -c ")


def test_a_checkout_is_installed_by_make_into_its_own_environment_and_by_its_path_into_others(wheel, monkeypatch):
    (wheel / "scripts").mkdir()
    (wheel / "scripts/bootstrap").touch()
    assert install.command("atari") == f"pip install -c {install.CONSTRAINTS} -e '{wheel}[atari]'"
    monkeypatch.setattr(sys, "prefix", str(wheel / ".venv"))
    assert install.command("atari") == "make venv EXTRAS=atari"
    assert install.command() == "make clean venv"

"""Cells that are run by another kernel: here of this very Python, without the environment that a notebook makes."""

import contextlib
import io
import os
import pathlib
import signal
import sys
import threading

import pytest

from acme_ext.utils import notebook


@pytest.fixture(scope="module")
def kernel():
    kernel = notebook._Kernel(pathlib.Path(sys.executable))
    yield kernel
    kernel.close()


def test_the_value_of_a_cell_comes_back_as_it_is_shown(kernel):
    shown = kernel.run("x = {'a': 1}\nx")
    assert repr(shown) == "{'a': 1}"
    assert kernel.run("import os; os.getpid()")._repr_mimebundle_()[0]["text/plain"] != str(os.getpid())
    assert kernel.run("y = 1") is None


def test_what_a_cell_prints_is_passed_on_with_its_stream(kernel, capsys):
    kernel.run("import sys\nprint('out')\nprint('\\r 50%', end='\\r', file=sys.stderr)")
    assert capsys.readouterr() == ("out\n", "\r 50%\r")


def test_pictures_are_passed_on(kernel, monkeypatch):
    import IPython.display

    published = []
    monkeypatch.setattr(
        IPython.display, "publish_display_data", lambda data, metadata, **rest: published.append((data, rest))
    )
    kernel.run(
        "from IPython.display import Image, display\n"
        "handle = display(Image(b'\\x89PNG', format='png'), display_id='it')\n"
        "handle.update(Image(b'\\x89PNG2', format='png'))"
    )
    (first, more), (second, update) = published
    assert first["image/png"] != second["image/png"]
    assert more["transient"] == {"display_id": "it"}
    assert update["update"]


def test_an_error_has_the_name_and_the_traceback_of_the_other_kernel(kernel):
    with pytest.raises(Exception, match="division by zero") as caught:
        kernel.run("def inner():\n    1 / 0\n\ninner()")
    assert type(caught.value).__name__ == "ZeroDivisionError"
    assert "inner" in "".join(caught.value._render_traceback_())
    assert repr(kernel.run("1 + 1")) == "2"  # and it goes on


def test_a_question_is_asked_here(kernel, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda prompt: f"answer to {prompt}")
    assert repr(kernel.run("input('who?')")) == "'answer to who?'"


def test_an_interrupt_reaches_the_cell_and_not_this_process(kernel, monkeypatch):
    handler = signal.getsignal(signal.SIGINT)  # Launchpad's, if a test in this process has launched a program

    class Stdout(io.StringIO):
        def write(self, text):
            if "here" in text:
                threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
            return super().write(text)

    with contextlib.redirect_stdout(Stdout()), pytest.raises(Exception, match=r"^$") as caught:
        kernel.run("import time\nprint('here', flush=True)\ntime.sleep(120)")
    assert type(caught.value).__name__ == "KeyboardInterrupt"
    assert isinstance(caught.value, Exception)
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.slow
def test_a_kernel_that_has_died_is_said_to_have(monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell

    kernel = notebook._Kernel(pathlib.Path(sys.executable))
    shell = InteractiveShell()
    shell.input_transformers_cleanup.append(notebook._handed_over)
    monkeypatch.setattr(notebook, "_kernel", kernel)
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    try:
        assert shell.transform_cell("%time x = 1\nx").startswith("__import__('acme_ext.utils.notebook'")
        assert shell.transform_cell("\n") == "\n"
        with pytest.raises(RuntimeError, match=r"ended with exit code -9\. Run the notebook from its first cell"):
            notebook.run("import os\nos.kill(os.getpid(), 9)")
        assert shell.transform_cell("x = 1\n") == "x = 1\n"
    finally:
        kernel.close()


def test_one_that_does_not_start_says_why(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no kernel here >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"ended with exit code 3\.\nno kernel here"):
        notebook._Kernel(python)


def test_where_the_package_runs_nothing_is_done(monkeypatch):
    monkeypatch.setattr(notebook, "_environment", lambda *_: pytest.fail("an environment is made"))
    notebook.use_python310()


def test_the_environment_has_the_package_from_where_it_is_here(monkeypatch, tmp_path):
    assert notebook._requirement(("bsuite",)) == f"acme-ext[bsuite] @ {pathlib.Path(__file__).parents[2].as_uri()}"
    monkeypatch.setattr(notebook.install, "checkout", lambda: None)

    class Distribution:
        version = "1.2"
        direct = None

        def read_text(self, name):
            return self.direct

    monkeypatch.setattr(notebook.importlib.metadata, "distribution", lambda name: Distribution())
    assert notebook._requirement(()) == "acme-ext==1.2"
    Distribution.direct = '{"url": "https://host/it", "vcs_info": {"vcs": "git", "commit_id": "0a"}}'
    assert notebook._requirement(()) == "acme-ext @ git+https://host/it@0a"
    Distribution.direct = '{"url": "file:///it.whl"}'
    assert notebook._requirement(()) == "acme-ext @ file:///it.whl"


def test_what_fails_is_shown(tmp_path):
    with pytest.raises(RuntimeError, match=r"(?s)failed:.*no such option"):
        notebook._call(sys.executable, "-m", "pip", "--no-such")

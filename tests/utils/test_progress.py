"""The progress line, on a terminal and elsewhere."""

import io
import os
import pty
import re
import struct
import termios
from fcntl import ioctl

import pytest

from acme_ext.utils.progress import ProgressLine


class _Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class _Terminal:
    """A pseudo-terminal: what is written to `stream` is read back by `text`."""

    def __init__(self, columns: int):
        self._master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w")
        self.resize(columns)

    def resize(self, columns: int) -> None:
        ioctl(self.stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def text(self) -> str:
        self.stream.write("<end>")  # the kernel hands it over in pieces
        self.stream.flush()
        text = ""
        while not text.endswith("<end>"):
            text += os.read(self._master, 1 << 16).decode()
        return text.removesuffix("<end>")

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = _Terminal(columns=200)
    yield terminal
    terminal.close()


def test_elsewhere_a_full_line_each_interval_and_a_last_one():
    clock, stream = _Clock(), io.StringIO()
    line = ProgressLine(1000, stream, interval_s=10.0, clock=clock)
    line.update(environment_steps=0)
    for second in range(1, 26):
        clock.now += 1
        line.update(environment_steps=20 * second, learner_steps=5 * second)
    line.close()
    line.close()
    line.update(environment_steps=1000)
    assert stream.getvalue().splitlines() == [
        " 20%  200/1,000 steps  20/s  0:40 left  learner 5/s",
        " 40%  400/1,000 steps  20/s  0:30 left  learner 5/s",
        " 50%  500/1,000 steps  20/s  0:25 left  learner 5/s",
    ]


def test_rates_leave_out_what_was_done_before_a_resume():
    clock, stream = _Clock(), io.StringIO()
    line = ProgressLine(100_000, stream, clock=clock)
    line.update(environment_steps=50_000, learner_steps=7_000)
    clock.now += 10
    line.update(environment_steps=50_100, learner_steps=7_030)
    assert stream.getvalue() == " 50%  50,100/100,000 steps  10/s  1:23:10 left  learner 3/s\n"


def test_rates_are_of_the_last_seconds():
    clock, stream = _Clock(), io.StringIO()
    line = ProgressLine(10_000, stream, interval_s=1.0, clock=clock)
    steps = 0
    for second in range(40):
        line.update(environment_steps=steps)
        clock.now += 1
        steps += 100 if second < 20 else 10  # it slowed down, twenty seconds ago
    line.update(environment_steps=steps)
    assert "  10/s  " in stream.getvalue().splitlines()[-1]


def test_fields_are_shown_in_order_with_the_mean_of_the_latest_returns():
    clock, stream = _Clock(), io.StringIO()
    line = ProgressLine(10, stream, interval_s=0.0, clock=clock)
    for episode in range(30):
        line.update(environment_steps=0, episode_return=episode)
    line.update(evaluation=float("nan"), beta=0.41234, loss=1234.5, mode="exploring")
    assert stream.getvalue().splitlines()[-1] == (
        "  0%  0/10 steps  return 19.5  evaluation nan  beta 0.412  loss 1,234  mode exploring"
    )


def test_a_terminal_has_one_line_that_is_drawn_at_most_five_times_a_second(terminal):
    clock = _Clock()
    with ProgressLine(100, terminal.stream, clock=clock) as line:
        for i in range(100):
            clock.now += 0.01
            line.update(environment_steps=i)
    text = terminal.text()
    assert text.count("\r\x1b[K") == 6  # at 0, 0.2, ... 0.8 seconds and at the end
    assert text.count("\n") == 1
    assert text.endswith("steps  100/s  0:00 left\r\n")


def test_a_line_fits_the_terminal_as_it_is_now(terminal):
    clock = _Clock()
    line = ProgressLine(100_000, terminal.stream, clock=clock)
    line.update(environment_steps=1, episode_return=1.0, evaluation=2.0)
    assert terminal.text() == "\r\x1b[K  0%  1/100,000 steps  return 1  evaluation 2"
    terminal.resize(40)
    clock.now += 1
    line.update()
    assert terminal.text() == "\r\x1b[K  0%  1/100,000 steps  0/s  return 1"
    terminal.resize(10)
    clock.now += 1
    line.update()
    assert terminal.text() == "\r\x1b[K  0%  1/1"


def test_messages_stand_above_the_line(terminal):
    line = ProgressLine(10, terminal.stream, clock=_Clock())
    line.print("before")
    line.update(environment_steps=1)
    line.print("saved")
    line.close()
    line.print("after")
    shown = re.sub(r"[^\n]*\r\x1b\[K", "", terminal.text())  # what has been cleared
    assert shown.splitlines() == ["before", "saved", " 10%  1/10 steps", "after"]


def test_a_stream_that_is_gone_does_not_end_the_run():
    stream = io.StringIO()
    line = ProgressLine(10, stream, interval_s=0.0)
    line.update(environment_steps=1)
    stream.close()
    line.update(environment_steps=2)
    line.print("nobody sees this")
    line.close()


def test_without_any_field_nothing_is_drawn():
    stream = io.StringIO()
    ProgressLine(10, stream).close()
    assert stream.getvalue() == ""

"""`python -m benchmarks.faults.ray_hosts`: tests a program on a Ray cluster of three hosts, which are Linux namespaces.

Each host has its own network namespace, connected to a virtual switch, its own host name and its own `/tmp`. This
machine's network is not changed. The command and the replay run on the first host, the learner on the second, and the
actors on the third. The test kills an actor's process, then the learner's process, and then the whole third host, after
disconnecting it. A fourth host replaces it. The run must still end at its budget.

It requires root, and a kernel that supports namespaces and bridges. Otherwise it only prints why it is skipped.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.utils import loggers

_ROOT = pathlib.Path(__file__).parents[2]
_SHARED = "/var/tmp"  # shared by all hosts, like a network file system
_PATIENCE_S = 180.0
_PORT = 6379
_CPUS = 4
_FIELDS = {"hidden_sizes": "64,64", "batch_size": 64, "replay.min_size": 500}


class Host:
    """A simulated host of the cluster; it exists as long as a sleeping process in its namespaces."""

    def __init__(self, switch: "Host | None", number: int):
        self.name, self.address = f"host{number}", f"10.77.0.{number}"
        kinds = ["--net", "--mount", "--uts"]
        self._holder = subprocess.Popen(["unshare", *kinds, "sleep", "infinity"], stdin=subprocess.DEVNULL)
        self._switch = switch
        try:
            self._connect()
        except BaseException:
            self._holder.kill()
            self._holder.wait()
            raise

    def _connect(self) -> None:
        switch = self._switch
        _wait_for(lambda: os.readlink(f"/proc/{self._holder.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
        if switch is None:
            self.run("ip link add switch type bridge")
            self.run("ip link set switch up")
            return
        switch.run(f"ip link add {self.name} type veth peer name cable netns {self._holder.pid}")
        switch.run(f"ip link set {self.name} master switch up")
        for line in (f"ip addr add {self.address}/24 dev cable", "ip link set cable up", "ip link set lo up"):
            self.run(line)
        self.run("mount --make-rprivate /")
        self.run("mount -t tmpfs tmpfs /tmp")
        self.run(f"hostname {self.name}")

    def enter(self, line: str) -> list[str]:
        """Returns a command line that runs `line` on this host."""
        pid = str(self._holder.pid)
        return ["nsenter", "--target", pid, "--net", "--mount", "--uts", "sh", "-c", line]

    def run(self, line: str) -> str:
        """Runs a command on this host; returns its output."""
        done = subprocess.run(self.enter(line), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{line}: {done.stdout}{done.stderr}")
        return done.stdout

    def processes(self) -> list[int]:
        """Returns the processes on this host."""
        mine, found = os.readlink(f"/proc/{self._holder.pid}/ns/net"), []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if os.readlink(entry / "ns" / "net") == mine:
                        found.append(int(entry.name))
        return found

    def node(self, name: str) -> int | None:
        """Returns the process of a program's node on this host, or None."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/1").endswith(f"/{name}.log"):
                    return pid
        return None

    def lose(self) -> None:
        """Disconnects the host's network, and then kills its processes."""
        if self._switch is not None:
            self._switch.run(f"ip link set {self.name} down")
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._holder.wait()


class Command:
    """The command that runs the program on a host."""

    def __init__(self, host: Host, run: pathlib.Path, line: str):
        self._run, self.started = run, time.monotonic()
        self._said: list[str] = []
        self.process = subprocess.Popen(
            host.enter(f"cd /tmp/work && exec {line}"), stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def steps(self) -> int:
        path = self._run / "logs" / "actor.csv"
        logged = loggers.read_csv(path).get("environment_steps", ()) if path.is_file() else ()
        return int(max(logged)) if len(logged) else 0

    def wait_for(self, condition: Callable[[], bool]) -> None:
        _wait_for(lambda: self.process.poll() is not None or condition())
        if self.process.poll() is not None:
            raise RuntimeError(f"the command has ended: {self.end()}")

    def end(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=_PATIENCE_S)
        return self.process.returncode, err


def play(steps: int) -> None:
    """Runs all steps of the test, and prints the observations."""
    switch = Host(None, 0)
    hosts = [switch]
    shared = pathlib.Path(tempfile.mkdtemp(prefix="ray-hosts-", dir=_SHARED))
    command = None
    try:
        for number in (1, 2, 3):
            hosts.append(Host(switch, number))
        head, second, third = hosts[1:]
        _start_ray(head, None, {"base": 9})
        _start_ray(second, head, {"second": 1})
        _start_ray(third, head, {"field": 9})
        _say("three hosts", head.run(f"{_python()} -m ray.scripts.scripts status | grep -c node_ || true").strip())
        # The other hosts only have this environment if it is sent to them.
        head.run(f"mkdir /tmp/work && cp {_ROOT}/tests/program/lab_walk.py /tmp/work")
        run = shared / "run"
        command = Command(head, run, _line(run, head, steps))
        command.wait_for(lambda: command.steps() > 500 and any((run / "checkpoints").glob("[0-9]*")))
        where = {
            name: [h.name for h in (head, second, third) if h.node(name)] for name in ("replay", "learner", "actor-0")
        }
        _say("nodes", where)
        assert where == {"replay": ["host1"], "learner": ["host2"], "actor-0": ["host3"]}, where

        _kill(third, "actor-0", command)
        _kill(second, "learner", command)
        now = time.monotonic()
        third.lose()
        fourth = Host(switch, 4)
        hosts.append(fourth)
        _start_ray(fourth, head, {"field": 9})
        at = command.steps()
        command.wait_for(lambda: fourth.node("actor-0") is not None and command.steps() > at + 300)
        _say("host3 lost; seconds until its actors run on host4", round(time.monotonic() - now, 1))
        code, err = command.end()
        _say("exit code", code)
        print(err)
        assert code == 0
        assert "restarts of nodes that had died: 2." in err
        assert "restarts of the whole program: 1." in err
        restored = CheckpointStore(run / "checkpoints").restore({})
        assert restored is not None
        assert restored.steps >= steps
        _say("steps", restored.steps)
        left = {
            h.name: [p for p in h.processes() if b"ray.host_server" in _command_of(p)] for h in (head, second, fourth)
        }
        assert not any(left.values()), left
        _say("no processes of the program are left on", ", ".join(left))
    finally:
        if command is not None and command.process.poll() is None:
            os.killpg(command.process.pid, signal.SIGKILL)
        for host in reversed(hosts):
            with contextlib.suppress(OSError, RuntimeError):
                host.lose()
        shutil.rmtree(shared, ignore_errors=True)


def _line(run: pathlib.Path, head: Host, steps: int) -> str:
    groups = dict.fromkeys(("replay", "coordinator", "evaluator"), "base") | {"learner": "second", "actor": "field"}
    words = [f"{_python()} -m acme_ext train dqn gym:lab_walk:LabWalk-v0 --actors 2 --steps {steps}"]
    words += [f"--run-dir {run} --on ray --ray-address {head.address}:{_PORT} --restart 3 --checkpoint-every 1"]
    words += [
        "--eval-every 2000 --eval-episodes 5",
        *(f"--resources {group}={name}:1" for group, name in groups.items()),
    ]
    words += [f"--set {name}={value}" for name, value in _FIELDS.items()]
    return " ".join(words)


def _start_ray(host: Host, head: Host | None, resources: dict[str, int]) -> None:
    where = f"--head --port={_PORT} --include-dashboard=false" if head is None else f"--address={head.address}:{_PORT}"
    named = ", ".join(f'"{name}": {count}' for name, count in resources.items())
    host.run(
        f"RAY_worker_niceness=0 {_python()} -m ray.scripts.scripts start {where} --node-ip-address={host.address} "
        f"--num-cpus={_CPUS} --num-gpus=0 --resources='{{{named}}}' --object-store-memory=80000000 "
        "--disable-usage-stats"
    )


def _kill(host: Host, name: str, command: Command) -> None:
    """Kills a node's process, and waits until a new process replaces it."""
    pid, now = host.node(name), time.monotonic()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    command.wait_for(lambda: host.node(name) not in (None, pid))
    at = command.steps()
    command.wait_for(lambda: command.steps() > at + 300)
    _say(f"{name} killed; seconds until the program continues", round(time.monotonic() - now, 1))


def _command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _python() -> str:
    return sys.executable


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("timed out")
        time.sleep(0.05)


def _say(what: str, value: object) -> None:
    print(f"{what}: {value}", flush=True)


def _why_not() -> str | None:
    """Returns why the test can't run on this machine, or None."""
    if os.geteuid() != 0:
        return "only root can create the hosts"
    tools = [name for name in ("ip", "unshare", "nsenter", "mount") if shutil.which(name) is None]
    if tools:
        return f"missing commands: {', '.join(tools)}"
    probe = "ip link add switch type bridge && mount --make-rprivate / && mount -t tmpfs tmpfs /tmp"
    done = subprocess.run(["unshare", "--net", "--mount", "--uts", "sh", "-c", probe], capture_output=True, text=True)
    return re.sub(r"\s+", " ", done.stderr).strip() or "namespaces are not available" if done.returncode else None


def main() -> int:
    parser = argparse.ArgumentParser(description="Tests a program on three simulated hosts, one of which is lost.")
    parser.add_argument("--steps", type=int, default=20_000, metavar="N", help="environment steps (%(default)s)")
    options = parser.parse_args()
    if (why := _why_not()) is not None:
        print(f"skipped: {why}.")
        return 0
    play(options.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())

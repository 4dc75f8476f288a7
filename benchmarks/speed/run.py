"""Measures the speed of each part, compared with its limit: `python -m benchmarks.speed`."""

import argparse
import concurrent.futures
import importlib
import multiprocessing
import os
import pathlib
from collections.abc import Sequence

from acme_ext.errors import UsageError, nearest
from acme_ext.utils import files
from acme_ext.utils.native import native_stderr
from benchmarks.shared import command, report
from benchmarks.shared.report import Figure

PEERS, ACCELERATOR = "peers", "accelerator"
SECTIONS = {
    "writer": "environment steps per second into Reverb",
    "dataset": "batches per second from Reverb",
    "learner": "SGD steps per second",
    "continuous": "SGD steps per second of agents for continuous control",
    "acting": "environment steps per second of the environment loop",
    "training": "environment steps per second of whole runs",
    "onpolicy": "environment steps per second of whole runs of on-policy agents",
    "compiled": "environment steps per second of compiled runs",
    "search": "simulations and moves per second of agents that plan, and SGD steps of their learner",
    "intrinsic": "environment steps per second with and without a bonus and of its memory, and SGD steps",
    "fixed_data": "batches and SGD steps per second from recorded data, and the cost of recording",
    "program": "time to start and stop programs, and steps per second of their actors and learners",
    ACCELERATOR: "steps per second with thousands of environments and with a deep network, on a GPU (only if named)",
    PEERS: "environment steps per second of other libraries for the same work (--peers)",
}
"""Name -> description of the measurement by `run` in `benchmarks.speed.sections.NAME`."""

_MOST_LOAD = 1.0  # maximum load of the machine for writing a page

RESULTS = pathlib.Path(__file__).parents[1] / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code: 0, or 2 for a usage error."""
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.speed", lambda: _main(options))


def run_section(name: str, seconds: float, rounds: int) -> list[Figure]:
    """Measures one section in this process; each contestant gets `seconds` in total, in `rounds` turns."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported
    with native_stderr():
        return importlib.import_module(f"benchmarks.speed.sections.{name}").run(seconds, rounds)


def _parser() -> argparse.ArgumentParser:
    sections = "; ".join(f"{name}: {what}" for name, what in SECTIONS.items())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=f"{__doc__} Sections: {sections}.")
    parser.add_argument(
        "--only", nargs="+", metavar="SECTION", help="only these sections; the page is only written with --out"
    )
    parser.add_argument("--peers", action="store_true", help="only the section peers; requires `make peers`")
    parser.add_argument("--busy", action="store_true", help="write a page even if the machine is busy (a load above 1)")
    parser.add_argument(
        "--seconds", type=float, default=3.0, metavar="S", help="seconds for each contestant (%(default)s)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=15,
        metavar="N",
        help="rounds over which the seconds are split (%(default)s); of whole runs a fifth, each of so many seconds",
    )
    parser.add_argument(
        "--out", type=pathlib.Path, metavar="FILE", help="writes FILE.json and FILE.md (benchmarks/results/speed)"
    )
    return parser


def _main(options: argparse.Namespace) -> int:
    chosen = [*(options.only or ()), *([PEERS] if options.peers else ())] or [
        n for n in SECTIONS if n not in (PEERS, ACCELERATOR)
    ]
    for name in chosen:
        if name not in SECTIONS:
            raise UsageError(f"there is no section {name!r}: {nearest(name, SECTIONS)}")
    if options.seconds <= 0 or options.rounds < 1:
        raise UsageError("--seconds must be positive and --rounds at least 1.")
    out = options.out or (None if options.only or options.peers else RESULTS / "speed")
    if out is not None and report.load() > _MOST_LOAD and not options.busy:
        raise UsageError(
            f"the load is {report.load():g}: measurements on a busy machine are unreliable. Wait, give --busy, or "
            "give --only without --out."
        )
    if out is not None:
        files.make_writable_folder(out.parent)
    facts = {"command": _command(options), **report.machine()}
    loads: list[float] = []
    figures: list[Figure] = []
    for name in SECTIONS:
        if name in chosen:
            measured = _in_a_process_of_its_own(name, options.seconds, options.rounds)
            print(report.table(measured), flush=True)
            figures += measured
            loads.append(report.load())
    facts |= {"load_during": f"{min(loads):g} to {max(loads):g}"}
    if ACCELERATOR in chosen:
        facts |= report.device()
    print(f"load before {facts['load_before']:g}, during {facts['load_during']}")
    if out is not None:
        print("written:", *report.write(out, figures, facts))
    return 0


def _command(options: argparse.Namespace) -> str:
    """Returns the command line that repeats the measurement."""
    only = ["--only", *options.only] if options.only else []
    peers = ["--peers"] if options.peers else []
    turns = ["--rounds", str(options.rounds), "--seconds", f"{options.seconds:g}"]
    return " ".join(["python -m benchmarks.speed", *only, *peers, *turns])


def _in_a_process_of_its_own(name: str, seconds: float, rounds: int) -> list[Figure]:
    """Measures a section in a separate process, without the threads and memory of other sections."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context, command.end_with, (os.getpid(),)) as pool:
        return pool.submit(run_section, name, seconds, rounds).result()

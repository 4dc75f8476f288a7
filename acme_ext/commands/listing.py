"""`acme-ext list`."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Adds the command."""
    commands.add_parser("list", help="agents, and environments by family").set_defaults(command=_list)


def _list(options: argparse.Namespace) -> int:
    from acme_ext import builders, envs

    print("Agents")
    for name, (_, summary) in builders.AGENTS.items():
        print(f"  {name:<10} {summary}")
    for name, value in builders.installed().items():
        print(f"  {name:<10} {value}")
    print("\nEnvironments")
    for family in envs.families():
        print(f"  {family.pattern:<24} {family.summary}  (e.g. {family.example})")
    return 0

"""The command `acme-ext list`."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Adds the command."""
    commands.add_parser("list", help="list the agents, and the families of environments").set_defaults(command=_list)


def _list(options: argparse.Namespace) -> int:
    from acme_ext import builders, envs

    print("Agents")
    agents = {name: summary for name, (_, summary) in builders.AGENTS.items()} | builders.installed()
    for name, summary in agents.items():
        print(f"  {name:<{max(map(len, agents))}} {summary}")
    print("\nEnvironments")
    for family in envs.families():
        print(f"  {family.pattern:<24} {family.summary}  (e.g. {family.example})")
    return 0

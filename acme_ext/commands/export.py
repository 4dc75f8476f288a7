"""The command `acme-ext export`."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Adds the command."""
    export = commands.add_parser(
        "export",
        help="export the policy of a run for use without this package",
        description="Export a run's evaluation policy to a folder, for use with only NumPy, with JAX (jax.export) or "
        "with ONNX.",
    )
    export.add_argument("run", metavar="RUN", help="a run directory, or one of its checkpoints")
    export.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder to write")
    export.add_argument("--onnx", action="store_true", help="also write policy.onnx")
    export.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    from acme_ext.launch.exporting.export import export_run

    print(export_run(options.run, options.output, onnx=options.onnx))
    return 0

"""The Reverb server of a run, which saves its checkpoints where the run needs them."""

import math
import pathlib
import shutil
import tempfile
from typing import Any

import numpy as np

from acme_ext.errors import RunError
from acme_ext.utils import proxies

_CHECKPOINT = ("DONE", "tables.tfrecord", "chunks.tfrecord")
_ANSWER_S = 60  # longest time for the server to answer; saving a large table keeps it busy
_DESCRIBE_S = 10  # the same where its state is only shown
_MAX_PAID_ITEMS = 2**12
_MAX_PAID_BYTES = 2**25  # inserting more would take longer than waiting for the reader


def import_libraries() -> None:
    """Imports Reverb, and the parts of TensorFlow that a replay uses.

    This takes seconds, so a process can do it early.
    """
    import reverb  # noqa: F401
    from reverb import structured_writer  # noqa: F401
    from tensorflow.python.eager import cancellation  # noqa: F401


class ReverbServer:
    """A Reverb server in this process.

    Args:
        tables: `reverb.Table`s.
        scratch: an existing folder for temporary files, preferably on the same file system as the checkpoints; None for
            the system's default.
        restore: a folder that `checkpoint` wrote, with the same tables, from which their contents are restored.
        port: the port to listen on; None to choose one.

    Raises:
        RunError: the server can't start, or `restore` is incomplete or has other tables.
    """

    def __init__(
        self,
        tables: list,
        *,
        scratch: pathlib.Path | None = None,
        restore: pathlib.Path | None = None,
        port: int | None = None,
    ):
        import reverb

        proxies.bypass()
        if restore is not None and not all((restore / name).is_file() for name in _CHECKPOINT):
            # Reverb would start with empty tables.
            raise RunError(f"the replay server did not start: {restore} is not a whole checkpoint of one.")
        # Reverb chooses the names of its checkpoints, so it writes to a temporary folder, and `checkpoint` moves them.
        self._scratch = tempfile.mkdtemp(prefix="reverb-", dir=scratch)
        checkpointer = reverb.checkpointers.DefaultCheckpointer(
            path=self._scratch, fallback_checkpoint_path=str(restore) if restore else None
        )
        try:
            self._server = reverb.Server(tables, port=port, checkpointer=checkpointer)
        except Exception as error:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise RunError(f"the replay server did not start: {error}") from error
        self.client: Any = reverb.Client(f"localhost:{self._server.port}")
        """A `reverb.Client` that accesses the tables without the network."""
        found = self.client.server_info() if restore else {}
        if changed := [
            table.name for table in tables if table.name in found and _differ(table.info, found[table.name])
        ]:
            self.close()
            raise RunError(
                f"the replay server did not start: {restore} holds table {changed[0]!r} with items of another shape. "
                "Another version of acme_ext, or other settings, wrote it."
            )

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    def counts(self, table: str) -> tuple[int, int]:
        """Returns the total numbers of rows inserted and sampled, including those before a restore."""
        info = self.client.server_info()[table]
        limiter, block = info.rate_limiter_info, block_of(info)
        return block * limiter.insert_stats.completed, block * limiter.sample_stats.completed

    def describe(self) -> str:
        """Returns the state of every table's rate limiter in words, to explain why a run is waiting."""
        return describe_tables(self.client)

    def checkpoint(self, folder: pathlib.Path) -> None:
        """Writes the tables' contents to a new folder."""
        shutil.move(self.client.checkpoint(), folder)

    def close(self) -> None:
        """Stops the server; its readers and writers fail afterwards."""
        self._server.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _differ(wanted: Any, found: Any) -> bool:
    """Whether the items of two tables have different shapes."""
    return wanted.signature is not None and wanted.signature != found.signature


def block_of(info: Any) -> int:
    """Returns the number of rows in an item of a table, from its signature (see `Replay.block`)."""
    shape = getattr(info.signature, "shape", ())
    return shape[0] if len(shape) == 2 else 1


def describe_tables(client: Any) -> str:
    """Returns in words the state of the rate limiters of all tables of a client's server, or that it doesn't answer."""
    try:
        tables = client.server_info(timeout=_DESCRIBE_S)
    except Exception as error:
        return f"the replay does not answer ({type(error).__name__})"
    return "; ".join(_describe(name, info) for name, info in tables.items())


def _describe(name: str, info: Any) -> str:
    limiter = info.rate_limiter_info
    inserts, samples = limiter.insert_stats.completed, limiter.sample_stats.completed
    block = block_of(info)
    items = "items" if block == 1 else f"items of {block} transitions"
    size = f"{info.current_size} of {info.max_size} {items}"
    parts = [f"table {name!r} holds {size}, {inserts} inserted and {samples} sampled"]
    if info.current_size < limiter.min_size_to_sample:
        parts.append(f"sampling waits for {limiter.min_size_to_sample} items")
    else:
        difference = inserts * limiter.samples_per_insert - samples
        parts.append(
            f"inserts * {limiter.samples_per_insert:g} - samples = {difference:g}: "
            f"sampling waits below {limiter.min_diff:g}, inserting above {limiter.max_diff:g}"
        )
    return ", ".join(parts)


def check_answers(client: Any, table: str) -> None:
    """Raises RuntimeError if a server doesn't answer any more; Reverb's readers would wait for it forever."""
    try:
        client.server_info(timeout=_ANSWER_S)
    except Exception as error:
        raise RuntimeError(f"table {table!r} could not be sampled: its server does not answer") from error


def pay_for_samples(client: Any, table: str, shape: tuple[int, ...]) -> Any:
    """Inserts items of zeros, uint8 of this shape, so that the rate limit allows many samples; returns their writer.

    It doesn't wait for the server, so some items arrive after it has returned. If it would take too many items, it
    inserts none and returns None.
    """
    info = client.server_info()[table]
    limiter = info.rate_limiter_info
    count = max(0, limiter.min_size_to_sample - info.current_size) + math.ceil(128 / limiter.samples_per_insert)
    row = np.zeros(shape, np.uint8)
    if count > _MAX_PAID_ITEMS or count * row.nbytes > _MAX_PAID_BYTES:
        return None
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    for _ in range(count):
        writer.append(row)
        writer.create_item(table, 1.0, writer.history[-1])
    return writer

"""How a node hears that it is to end.

This package's launchers tell the nodes in an order in which each can still do what it has to. Launchpad's own tell all
of them at once, at Ctrl-C too. The coordinator then has the program end as if somebody had asked for it, and until it
has, the nodes that take part in the last save go on.
"""

import time

import launchpad as lp
from launchpad import context

from acme_ext.launch.processes.forks import IN_ORDER


def told_at_once() -> bool:
    """Whether a launcher of Launchpad's own runs this node; asked in the node's own thread."""
    return context.get_context().launch_config != IN_ORDER


def ends(timeout_s: float) -> bool:
    """Waits for so long, and returns whether this node, which takes part in the last save, is to end now."""
    if not lp.wait_for_stop(timeout_s):
        return False
    if told_at_once():
        time.sleep(timeout_s)
        return False
    return True

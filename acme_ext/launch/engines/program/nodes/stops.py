"""How nodes learn that they must stop.

This package's launchers stop the nodes in an order that lets each finish its work. Launchpad's own launchers tell all
nodes at once, also at Ctrl-C. The coordinator then ends the program in the usual way, and the nodes that take part in
the last save keep running until it has finished.
"""

import time

from acme_ext.launch.hosts import launchpad as lp
from acme_ext.launch.hosts.node_process import IN_ORDER


def stopped_together() -> bool:
    """Whether one of Launchpad's own launchers runs this node; call this in the node's own thread."""
    return lp.get_context().launch_config != IN_ORDER


def ends(timeout_s: float) -> bool:
    """Waits up to `timeout_s`; returns whether this node, which takes part in the last save, must end now."""
    if not lp.wait_for_stop(timeout_s):
        return False
    if stopped_together():
        time.sleep(timeout_s)
        return False
    return True

"""Launchpad's names, for the description of programs.

Launchpad needs Python 3.10. If it is not installed, this module has classes and functions with the same names and the
same behaviour, see `description`. A program is then described and run in the same way, but calls between its nodes go
over `utils.calls` instead of Courier, and `lp.launch` is missing. The only module that imports Launchpad is this one.
"""

import importlib.util
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

INSTALLED = importlib.util.find_spec("launchpad") is not None
"""Whether these are Launchpad's own; its flags are then defined, too."""

if TYPE_CHECKING or INSTALLED:
    from launchpad import AbstractAddressBuilder as AbstractAddressBuilder
    from launchpad import Address as Address
    from launchpad import CourierHandle as CourierHandle
    from launchpad import CourierNode as CourierNode
    from launchpad import LaunchType as LaunchType
    from launchpad import Program as Program
    from launchpad import PyClassNode as PyClassNode
    from launchpad import PyNode as PyNode
    from launchpad import get_port_from_address as get_port_from_address
    from launchpad import make_program_stopper as make_program_stopper
    from launchpad import stop as stop
    from launchpad import stop_event as stop_event
    from launchpad import wait_for_stop as wait_for_stop
    from launchpad.context import get_context as get_context
    from launchpad.nodes.base import Handle as Handle

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGALRM)  # Launchpad sets their handlers

    def manage_process(request_end: Callable[[], None]) -> Callable[[], None]:
        """Prepares a process, in its main thread, for running one node.

        Args:
            request_end: asks for the end of the program after a last save.

        Returns:
            A function that tells the node to stop, for a signal handler.
        """
        from absl import flags
        from launchpad.launch import worker_manager
        from launchpad.program_stopper import program_stopper

        flags.FLAGS.lp_termination_notice_secs = -1  # no limit: the parent process ends this one
        worker_manager.WorkerManager(register_in_thread=True)
        # By default, the function from `make_program_stopper` would send a SIGTERM, as if the node were killed.
        program_stopper._ask_launcher_for_termination = lambda pid, mark_as_completed=False: (
            request_end() if pid == os.getpid() else os.kill(pid, signal.SIGTERM)
        )
        handler: Any = signal.getsignal(signal.SIGTERM)  # by which Launchpad stops nodes
        return lambda: handler(signal.SIGTERM, None)

    def manage_threads() -> Any:
        """Returns the manager of nodes that are threads of this process, without its signal handlers."""
        from absl import flags
        from launchpad.launch import worker_manager

        if not flags.FLAGS.is_parsed():
            flags.FLAGS(["acme-ext"], known_only=True)
        notice = flags.FLAGS.lp_termination_notice_secs
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        flags.FLAGS.lp_termination_notice_secs = -1  # never ends the process
        try:
            return worker_manager.WorkerManager(kill_main_thread=False, register_signals=False)
        finally:
            flags.FLAGS.lp_termination_notice_secs = notice
            for number, handler in handlers.items():
                signal.signal(number, handler)

else:
    from acme_ext.launch.hosts.description import AbstractAddressBuilder as AbstractAddressBuilder
    from acme_ext.launch.hosts.description import Address as Address
    from acme_ext.launch.hosts.description import CourierHandle as CourierHandle
    from acme_ext.launch.hosts.description import CourierNode as CourierNode
    from acme_ext.launch.hosts.description import Handle as Handle
    from acme_ext.launch.hosts.description import LaunchType as LaunchType
    from acme_ext.launch.hosts.description import Program as Program
    from acme_ext.launch.hosts.description import PyClassNode as PyClassNode
    from acme_ext.launch.hosts.description import PyNode as PyNode
    from acme_ext.launch.hosts.description import get_context as get_context
    from acme_ext.launch.hosts.description import get_port_from_address as get_port_from_address
    from acme_ext.launch.hosts.description import make_program_stopper as make_program_stopper
    from acme_ext.launch.hosts.description import manage_process as manage_process
    from acme_ext.launch.hosts.description import manage_threads as manage_threads
    from acme_ext.launch.hosts.description import stop as stop
    from acme_ext.launch.hosts.description import stop_event as stop_event
    from acme_ext.launch.hosts.description import wait_for_stop as wait_for_stop

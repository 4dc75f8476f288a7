"""The keeper's process; see `process_tree`. It does nothing else, so that it is unlikely to die."""

import importlib
import os
import signal
import sys
import traceback
from types import FrameType

from acme_ext.launch.processes import process_tree


def main(entry: str, descriptor: int, ready: int, launcher: int, private: int) -> int:
    """Runs the supervisor or Ray's driver with the input from the launcher (`launcher.receive`); returns its exit code.

    `entry` is the module of `launch` whose `main` it runs. Both processes start with all stop requests blocked. Each
    unblocks them when it can handle them; the keeper never unblocks those that reach the supervisor too.
    """
    process_tree.take_in_orphans()
    if not process_tree.tell_when_orphaned(launcher, process_tree.ORPHANED):
        return 1
    keeper, supervisor = os.getpid(), os.fork()
    if supervisor == 0:
        code = 1
        try:
            code = importlib.import_module(f"acme_ext.launch.{entry}").main(descriptor, ready, keeper, bool(private))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # skips the slow exit handlers of imported libraries

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(supervisor, number)

    def abandon(number: int, frame: FrameType | None) -> None:
        os.kill(supervisor, signal.SIGKILL)

    signals = {process_tree.ORPHANED: abandon, **dict.fromkeys(process_tree.REQUESTS.values(), pass_on)}
    for number, handler in signals.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOWAIT)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # after waitpid, its pid may be another process's
    _, status = os.waitpid(supervisor, 0)
    process_tree.end_children()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:  # the launcher learns how the supervisor ended
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))

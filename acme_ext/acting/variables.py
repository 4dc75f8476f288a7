"""An actor's access to the learner's parameters."""

from typing import Any

from acme_ext import interfaces
from acme_ext.types import Params

POLICY = "policy"
"""The name under which every learner publishes its policy's parameters."""


class VariableClient:
    """Holds an actor's parameters, and updates them from a variable source.

    Args:
        source: the learner, or a `RemoteVariables`.
        period: calls of `update` between fetches of new parameters.
    """

    def __init__(self, source: interfaces.VariableSource, period: int = 1):
        self._source, self._period = source, period
        self._calls = 0
        self._params: Any = None

    @property
    def params(self) -> Params:
        """The current parameters; fetched on first use."""
        if self._params is None:
            self.update(wait=True)
        return self._params

    def update(self, wait: bool = False) -> None:
        """Fetches new parameters if that is due; always if `wait` is true."""
        self._calls += 1
        if wait or self._calls >= self._period:
            self._calls = 0
            (self._params,) = self._source.get_variables([POLICY])

"""Where an actor's parameters come from."""

from typing import Any

from acme_ext import interfaces
from acme_ext.types import Params

POLICY = "policy"
"""The name under which every learner offers what its policy is applied with."""


class VariableClient:
    """Holds an actor's parameters and renews them from a variable source in the same process.

    Args:
        source: usually the learner.
        period: calls of `update` between renewals.
    """

    def __init__(self, source: interfaces.VariableSource, period: int = 1):
        self._source, self._period = source, period
        self._calls = 0
        self._params: Any = None

    @property
    def params(self) -> Params:
        """The parameters in force; fetched when first asked for."""
        if self._params is None:
            self.update(wait=True)
        return self._params

    def update(self, wait: bool = False) -> None:
        """Renews the parameters if it is time, or in any case if `wait`."""
        self._calls += 1
        if wait or self._calls >= self._period:
            self._calls = 0
            (self._params,) = self._source.get_variables([POLICY])

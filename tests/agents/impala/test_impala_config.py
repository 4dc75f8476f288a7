"""What IMPALA's config refuses."""

import pytest

from acme_ext.agents.impala.config import IMPALAConfig
from acme_ext.errors import UsageError


def test_a_max_rho_below_max_c_is_refused():
    with pytest.raises(UsageError, match=r"^max_rho is 0.5"):
        IMPALAConfig(max_rho=0.5)


def test_none_switches_the_bound_off():
    assert IMPALAConfig(max_gradient_norm=None).max_gradient_norm is None

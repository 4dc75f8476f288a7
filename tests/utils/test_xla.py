import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("given", [None, "--xla_cpu_max_isa=AVX2", "--xla_disable_hlo_passes=algsimp"])
def test_xla_is_told_before_anything_can_use_it(given):
    code = "import os, sys, acme_ext; print(os.environ['XLA_FLAGS'], 'jax' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {"XLA_FLAGS": given} if given else {}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    flags = done.stdout.split()
    assert flags.pop() == "False"
    told = "--xla_disable_hlo_passes=onednn-contraction-rewriter"
    assert flags == [flag for flag in (given, None if given and "hlo" in given else told) if flag]

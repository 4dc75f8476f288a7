import os
import subprocess
import sys

import jaxlib
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


_LOSES_CONSTANTS = tuple(map(int, jaxlib.__version__.split(".")[:3])) < (0, 6, 2)


@pytest.mark.parametrize(
    ("imports", "asked"),
    [("import acme_ext, jax", None), ("import jax, acme_ext", None), ("import acme_ext, jax", "1")],
)
@pytest.mark.skipif(not _LOSES_CONSTANTS, reason="programs of this jaxlib keep their constants")
def test_compiled_programs_are_not_read_from_a_folder_unless_asked(imports, asked, tmp_path):
    code = f"{imports}; print(jax.config.jax_enable_compilation_cache, *jax.jit(lambda: 1.0)().devices())"
    environment = {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_COMPILATION_CACHE"}
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    environment |= {"JAX_ENABLE_COMPILATION_CACHE": asked} if asked else {}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == str(asked is not None)
    assert bool(list(tmp_path.iterdir())) == (asked is not None)
    assert ("JAX_COMPILATION_CACHE_DIR is not used" in done.stderr) == (asked is None)


@pytest.mark.parametrize("threshold", [2, 3, 4, 5])
def test_a_collection_does_not_end_the_first_import_of_jax(threshold):
    """With 2 and with 5, jaxlib 0.5.3 has one at the wrong moment if nothing is done."""
    quick = f"gc.collect(); gc.set_threshold({threshold}, 1000, 1000)"
    code = f"import acme_ext, gc, jaxlib.xla_extension; {quick}; import jax; print(gc.isenabled())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"

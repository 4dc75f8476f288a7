"""What all tests share."""

import gc

# A garbage collection during the first import of jaxlib 0.5.3 can end the process with a segmentation fault. Pytest has
# made enough garbage by then for one to happen, so no test module is left to be the first.
gc.disable()
import jax  # noqa: E402, F401

gc.enable()

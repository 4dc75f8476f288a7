"""What XLA must be told before it is first used, which `import acme_ext` does.

XLA reads `XLA_FLAGS` once, and a library of environments may use it while it is imported.
"""

import os

# To compile a product whose second factor comes out of a loop, as in the gradient of a recurrent network, ends the
# process in the old runtime of jaxlib 0.5.3: its pass for oneDNN asserts that the loop can be evaluated beforehand.
# DQN's learner is as fast without the pass.
if "xla_disable_hlo_passes" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_disable_hlo_passes=onednn-contraction-rewriter"

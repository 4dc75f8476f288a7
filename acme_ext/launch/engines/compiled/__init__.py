"""Runs that are one compiled program: environments, acting, replay and learning (Hessel et al. 2021, Anakin).

- `loops`: the training and evaluation loops, as pure functions of one seed's state, `RunState`. `jax.vmap` runs several
  seeds together.
- `state`: `RunState`, everything of one seed's run.
- `engine`: calls the compiled loop, for all seeds at once.
- `sharding`: which arrays are split over several devices.
- `memory`: whether the arrays fit into the device's memory.

The environment must be written in JAX (`acme_ext.envs.functional`). The agents are the same as in all other runs.
"""

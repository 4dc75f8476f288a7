"""Runs that are one compiled program: environments, acting, replay and learning (Hessel et al. 2021, Anakin).

- `loops`: the training and evaluation loops, as pure functions of one seed's state, `RunState`. `jax.vmap` runs several
  seeds together.
- `sharding`: which arrays are split over several devices.
- `runner`: calls the compiled loop; logs, evaluates, saves checkpoints and resumes between two calls.

The environment must be written in JAX (`acme_ext.envs.functional`). The agents are the same as in all other runs.
"""

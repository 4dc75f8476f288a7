"""Runs that are one compiled program: environments, acting, replay and learning (Hessel et al. 2021, Anakin).

- `loops`: pure functions. A `World` is all that there is of one seed's run, and `jax.vmap` makes it that of several.
- `spread`: which arrays are split over several devices.
- `runner`: what surrounds the loop between two calls of it: logs, evaluations, checkpoints, resuming.

The environment has to be written in JAX (`acme_ext.envs.functional`); the agents are those of every other run.
"""

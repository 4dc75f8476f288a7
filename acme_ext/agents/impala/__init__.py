"""IMPALA (Espeholt et al. 2018): an actor-critic that corrects for its actors' older parameters with V-trace."""

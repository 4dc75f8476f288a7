"""IMPALA (Espeholt et al. 2018): an actor-critic whose learner corrects for the lag of its actors by V-trace."""

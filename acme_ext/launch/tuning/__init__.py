"""Tuning an agent: a search over its settings, each trial of which is a run."""

"""Benchmarks of the toolkit: its speed (`python -m benchmarks.speed`) and how well its agents learn
(`python -m benchmarks.learning`).
"""

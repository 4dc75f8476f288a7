"""What the toolkit does, measured: how fast (`python -m benchmarks.speed`) and how well it learns
(`python -m benchmarks.learning`).
"""

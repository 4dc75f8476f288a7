"""R2D3 (Paine et al. 2019): R2D2 that learns from demonstrations beside its own experience."""

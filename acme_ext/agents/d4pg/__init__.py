"""D4PG (Barth-Maron et al. 2018) and Ape-X DPG (Horgan et al. 2018): deterministic policy gradients from replay."""

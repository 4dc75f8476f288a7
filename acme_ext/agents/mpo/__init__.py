"""MPO (Abdolmaleki et al. 2018a, 2018b), and DMPO, the same with a distributional critic."""

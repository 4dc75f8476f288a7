"""AlphaZero (Silver et al. 2018): tree search with the rules of a game, trained by self-play."""

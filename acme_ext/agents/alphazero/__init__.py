"""AlphaZero (Silver et al. 2018): planning by a tree search in the rules of a game, learned by self-play."""

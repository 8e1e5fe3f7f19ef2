"""How guesses with probabilities become trees: growth inside the grammar, and the choice of what to keep."""

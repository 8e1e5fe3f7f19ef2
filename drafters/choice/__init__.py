"""How many guesses pay, and whose: costs of a step, chances of guesses, and the budget that weighs them."""

"""Small networks that guess from the target's own hidden states, and the keys and values that they need."""

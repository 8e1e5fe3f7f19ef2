"""Guesses of several tokens at once, never trusted: the target model verifies each of them.

Invariant: a drafter changes how fast a text is produced, never which text.
"""

"""Constraint text to automata, and automata to token masks.

Invariant: nothing here imports model code; a grammar is a function of its text, its options and a vocabulary alone.
"""

"""Regular languages of texts: an algebra of expressions, and automata over bytes that are built as they are walked.

Invariant: every automaton's words are valid UTF-8, and no state but DEAD is a dead end.
"""

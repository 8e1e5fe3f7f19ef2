"""Regular expressions as users write them, in two dialects, to expressions.

Invariant: a pattern either becomes exactly the language of its dialect or is refused with the place in the pattern.
"""

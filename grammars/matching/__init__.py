"""Token masks and matchers over lazily built automata with a stack.

Invariant: everything here is independent of where the automaton comes from; schemas, regexes and choices meet in
`tables.Source`.
"""

"""Compilation where it can be killed: dispatch to backends, worker processes with limits, caches.

Invariant: the process that serves requests never compiles a caller's constraint itself.
"""

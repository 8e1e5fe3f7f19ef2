"""Grammar engines of others behind our protocol, for comparison and as oracles.

Invariant: each compiles whole in the worker; nothing but walking a finished index happens in the server.
"""

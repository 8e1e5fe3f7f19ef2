"""Context-free grammars as callers write them, to the text that llguidance compiles.

Invariant: no other parser sees a caller's text before ours has read it whole; what llguidance gets is written by us.
"""

"""Texts of several parts: reasoning, then free text, and constrained parts between markers.

    spec  ──► compile ──► tagged, reasoning (sources) ──► matching/
     │           └──────► layout: what the finished text is taken apart by
     └ markers: begin and end strings as bytes, special tokens among them

Invariant: where a part begins and ends is decided byte by byte, so that no text can be read in two ways and a token may
hold the end of one part and the beginning of the next.
"""

"""The kinds of terms and what their arguments are.

Invariant: terms are created operands first, so that a term's arguments are smaller integers than the term.
"""

from __future__ import annotations

from typing import Final

CHARS: Final = 0
"""guard: one character of it."""
CAT: Final = 1
"""head, tail: neither is EMPTY or EPSILON; the head is no CAT."""
OR: Final = 2
"""members, sorted: at least two; none is an OR."""
AND: Final = 3
"""members, sorted: at least two; none is an AND."""
NOT: Final = 4
"""body."""
REP: Final = 5
"""body, least, most: `INFINITE` for no upper bound."""
AHEAD: Final = 6
"""language of all the text that is left."""
BEHIND: Final = 7
"""language of the text read so far, derived along with it."""
SCOPE: Final = 8
"""body."""
TAG: Final = 9
"""label, body."""
LEAF: Final = 10
"""position in `Terms.leaves`."""
JSON: Final = 11
"""place and more; see `json_escapes`."""
KINDS: Final = 12

EMPTY: Final = 0
"""The term of the empty language."""
EPSILON: Final = 1
"""The term of the empty text, written as no repetition of EMPTY."""
CONDITIONAL: Final = -1
"""In `Terms.nullable`: the terms inside must be asked."""
INFINITE: Final = 1 << 62

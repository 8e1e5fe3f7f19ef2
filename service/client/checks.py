"""What the client refuses before anything is sent.

Invariant: every refusal is an InvalidArgumentError that names the field by its path in the protobuf messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from service.client.errors import InvalidArgumentError


@contextmanager
def checked(field: str) -> Iterator[None]:
    """Report a value that protobuf refuses (wrong type, outside its integer type, not UTF-8) under its field's path."""
    try:
        yield
    except InvalidArgumentError:
        raise
    except UnicodeEncodeError as error:
        place = f"{error.object[error.start]!r} at character {error.start}"
        problem = f"has a lone surrogate ({place}), which UTF-8 cannot hold; remove it or replace it by its character"
        raise InvalidArgumentError(f"{field}: {problem}", field) from error
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{field}: {error}", field) from error


def refuse_single_text(value: object, field: str) -> None:
    """A str is a sequence too: taken as one, "END" would become three texts."""
    if isinstance(value, str | bytes):
        raise InvalidArgumentError(f"{field}: is a single text; give a list of texts", field)


def only_one(kinds: Mapping[str, object], field: str) -> str | None:
    """The name of the one kind that is given (neither None nor False); None without any, an error with several."""
    given = [name for name, value in kinds.items() if value is not None and value is not False]
    if len(given) > 1:
        raise InvalidArgumentError(f"{field}: {' and '.join(given)} are given; give one of {', '.join(kinds)}", field)
    return given[0] if given else None

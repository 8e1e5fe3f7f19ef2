"""Log lines: what happened, then the facts as fields, for people or as JSON for machines.

Facts travel in the ``extra`` of a log call. Invariant: a prompt is in no line unless the server was told to log them;
one record is one line, with its traceback below.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Literal

LogFormat = Literal["text", "json"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(level: str, log_format: LogFormat) -> None:
    """Send all log lines of this process from ``level`` on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else FieldFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class FieldFormatter(logging.Formatter):
    """``2025-01-31 12:00:00,000 INFO service.server: ready address=127.0.0.1:50051``"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without its traceback."""
        fields = "".join(f" {name}={_on_one_line(value)}" for name, value in _fields(record).items())
        return super().formatMessage(record) + fields


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the facts, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The whole line."""
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def _on_one_line(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text, ensure_ascii=False)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}

"""Log lines of both formats."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from service.logs import FieldFormatter, JsonFormatter, configure_logging


def record(message="request", error=None, **facts):
    made = logging.makeLogRecord({"name": "service.run", "levelname": "INFO", "msg": message, **facts})
    if error is not None:
        try:
            raise error
        except type(error):
            made.exc_info = sys.exc_info()
    return made


def test_facts_follow_the_message():
    line = FieldFormatter().format(record(request_id="ab", ms=1.5, prompt="two words\nand a line"))
    assert line.endswith(r'INFO service.run: request request_id=ab ms=1.5 prompt="two words\nand a line"')
    assert "\n" not in line


def test_json_lines_are_whole_objects():
    line = JsonFormatter().format(record(request_id="ab", ms=1.5, prompt="a\nb"))
    assert "\n" not in line
    fields = json.loads(line)
    assert {"level": "INFO", "logger": "service.run", "message": "request"}.items() <= fields.items()
    assert {"request_id": "ab", "ms": 1.5, "prompt": "a\nb"}.items() <= fields.items()
    assert set(fields) == {"time", "level", "logger", "message", "request_id", "ms", "prompt"}


@pytest.mark.parametrize("formatter", [FieldFormatter(), JsonFormatter()])
def test_tracebacks_are_kept(formatter):
    line = formatter.format(record(error=ValueError("odd")))
    assert "ValueError: odd" in line
    assert "Traceback" in line


def test_configuring_sends_lines_from_the_level_on_to_standard_error(capsys, monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    configure_logging("warning", "json")
    logging.getLogger("x").info("no")
    logging.getLogger("x").warning("yes")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["message"] == "yes"

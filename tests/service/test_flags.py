"""Flags from dataclasses."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import EngineConfig
from grammars.limits import ConstraintLimits
from service.cli import serve
from service.limits import ServiceLimits
from service.settings import ServerSettings


def parse(*argv):
    return serve.read_settings(serve.make_parser().parse_args(argv))


def test_without_flags_the_settings_are_the_defaults():
    assert parse() == ServerSettings()


def test_every_kind_of_flag_is_read():
    settings = parse(
        *("--address", "[::1]:7", "--drain-seconds", "1.5", "--metrics-port", "9", "--log-format", "json"),
        *("--log-prompts", "--no-chunked-prefill", "--cache-dir", "/x", "--context-length", "64", "--dtype", "float32"),
        *("--max-samples", "3", "--compile-workers", "1", "--constraint-wall-s", "2.5", "--constraint-depth", "9"),
    )
    assert (settings.address, settings.drain_seconds, settings.metrics_port) == ("[::1]:7", 1.5, 9)
    assert (settings.log_format, settings.log_prompts) == ("json", True)
    assert settings.engine == EngineConfig(
        chunked_prefill=False, cache_dir=Path("/x"), context_length=64, dtype="float32"
    )
    assert settings.limits == ServiceLimits(max_samples=3)
    assert settings.compiling.workers == 1
    assert settings.compiling.limits == ConstraintLimits(wall_s=2.5, depth=9)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--max-running", "0"], "--max-running is 0; it must be at least 1"),
        (["--drain-seconds", "-1"], "--drain-seconds is -1.0; it must be at least 0"),
        (["--drain-seconds", "nan"], "--drain-seconds is nan"),
        (["--stall-seconds", "0"], "--stall-seconds is 0.0; it must be above 0"),
        (["--metrics-port", "70000"], "--metrics-port is 70000; it must be a port"),
        (["--max-logprobs", "21"], "--max-logprobs is 21; it must be at most 20"),
        (["--max-text-bytes", "0"], "--max-text-bytes is 0; it must be at least 1"),
        (["--constraint-depth", "0"], "--constraint-depth is 0"),
        (["--dtype", "int3"], "invalid choice: 'int3'"),
        (["--unknown"], "unrecognized arguments: --unknown"),
    ],
)
def test_wrong_flags_end_with_code_2_and_name_the_flag(argv, message, capsys):
    with pytest.raises(SystemExit) as caught:
        serve.main(argv)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_the_help_has_a_text_for_every_flag(capsys):
    parser = serve.make_parser()
    assert [action.dest for action in parser._actions if not action.help] == []
    with pytest.raises(SystemExit):
        serve.main(["--help"])
    assert "--max-batch-tokens" in capsys.readouterr().out

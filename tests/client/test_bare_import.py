from __future__ import annotations

import subprocess
import sys
import textwrap

SERVER_ONLY = "torch numpy transformers tokenizers safetensors gguf numba jinja2 rich jsonschema psutil platformdirs"


def run(code: str) -> subprocess.CompletedProcess[str]:
    blocked = f"import sys\nfor name in {SERVER_ONLY.split()!r}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", blocked + textwrap.dedent(code)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_client_imports_and_works_without_the_server_s_packages():
    done = run(
        """
        from service.client import AsyncClient, Client, Request, UnavailableError
        assert not {"engine", "drafters", "grammars", "decoding"} & {name.partition(".")[0] for name in sys.modules}
        with Client("127.0.0.1:1") as client:
            try:
                client.generate("p", schema=dict[str, int])
            except UnavailableError:
                print("unavailable")
        """
    )
    assert (done.returncode, done.stdout) == (0, "unavailable\n"), done.stderr


def test_the_client_s_commands_run_without_the_server_s_packages():
    done = run(
        """
        from service.cli.main import main
        assert main(["generate", "hello", "--address", "127.0.0.1:1"]) == 1
        assert main(["models", "--address", "127.0.0.1:1"]) == 1
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("127.0.0.1:1") >= 2


def test_the_block_blocks():
    assert "import of torch halted" in run("import torch").stderr

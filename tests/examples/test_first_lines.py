"""The first lines of each example, run as they stand: without a broker or an API it must report just that."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = sorted(
    path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs" / "examples").glob("**/*.py")
)
BLOCK = re.compile(r"In the top\s+folder of a clone[^:]*:\n\n((?: {4}.*\n)+)")
NO_BROKER = "127.0.0.1:9"
PROGRAM_S = 30.0
STAND_INS = 'pip() { :; }\npython() { "$PYTHON" "$@"; }\nloomlog() { [ "$1" = up ] || "$LOOMLOG" "$@"; }\n'


def commands(example: str) -> str:
    """The commands of an example's first lines."""
    block = BLOCK.search(ast.get_docstring(ast.parse((REPOSITORY / example).read_text())) or "")
    assert block is not None, f"{example} does not say how to start it in the top folder of a clone"
    return block[1]


class Refusing(BaseHTTPRequestHandler):
    """An API that knows no token."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b'{"code": "unauthorized", "error": "the token is unknown"}'
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def api_url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with nothing but the examples, where programs may write files."""
    shutil.copytree(REPOSITORY / "docs" / "examples", tmp_path / "docs" / "examples")
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_starts_as_its_first_lines_say(example: str, clone: Path, api_url: str) -> None:
    block = commands(example).replace("127.0.0.1:19092", NO_BROKER).replace("http://127.0.0.1:8787", api_url)
    loomlog = Path(sys.executable).with_name("loomlog")
    environ = {name: os.environ[name] for name in ("PATH", "PYTHONPATH")}
    ended = subprocess.run(
        ["/bin/sh", "-ec", STAND_INS + block],
        cwd=clone,
        env=environ | {"PYTHON": sys.executable, "LOOMLOG": str(loomlog), "LOOMLOG_BASE_URL": api_url},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    output = ended.stdout + ended.stderr
    assert re.search("Unable to bootstrap|(?i:the token is unknown|a token is required)", output), output
    assert not re.search("Traceback|Unclosed", output), output
    assert ended.returncode != 0


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_an_example_installs_is_there(example: str) -> None:
    extras = tomllib.loads((REPOSITORY / "connectors/client/pyproject.toml").read_text())["project"]
    for words in re.findall(r"pip install (.+)", commands(example)):
        match = re.fullmatch(r"'?\./connectors/client(?:\[(\w+)\])?'?|httpx|websockets", words)
        assert match is not None, words
        assert match[1] is None or match[1] in extras["optional-dependencies"]

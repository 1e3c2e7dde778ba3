"""Runs the official conformance package of MCP against an API: `make conformance` (needs npx; not part of the suite).

It starts a stack of its own in open mode, because the package sends no token. What the package expects of its own test
server is listed in conformance.yml; anything else that fails, or an entry that passes, is an error.
"""

import subprocess
import sys
from pathlib import Path

from tests.acceptance.installation import running_installation

PACKAGES = ("node@22", "@modelcontextprotocol/conformance@0.1.16")
"""The package needs Node 22."""
EXPECTED = Path(__file__).with_name("conformance.yml")
TIMEOUT_S = 600


def main() -> int:
    """Return the exit code of the package."""
    with running_installation("conformance") as stack:
        url = f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}/v1/_mcp"
        packages = [part for package in PACKAGES for part in ("--package", package)]
        script = f'node "$(command -v conformance)" server --url {url} --expected-failures {EXPECTED}'
        done = subprocess.run(
            ["npx", "--yes", *packages, "--call", script], cwd=stack.folder, timeout=TIMEOUT_S, check=False
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

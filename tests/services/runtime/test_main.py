"""The process itself, as far as it needs no broker."""

import asyncio
import os
import sys
from pathlib import Path

WAIT_S = 30.0
CONFIGURATION = """
tiers:
  low: [{ provider: anthropic, model: claude-haiku-4-5 }]
agents:
  helper: { tier: low }
"""


async def test_a_tier_that_resolves_to_nothing_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "LOOMLOG_KAFKA": "127.0.0.1:1",
        "LOOMLOG_POSTGRES": "postgresql://x@127.0.0.1:1/x",
        "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loomlog.services.runtime.main", cwd=tmp_path, env=environ, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(WAIT_S):
        _, error = await process.communicate()
    assert process.returncode == 2
    assert "agents.helper.tier: tier low resolves to nothing" in error.decode()
    assert "ANTHROPIC_API_KEY" in error.decode()

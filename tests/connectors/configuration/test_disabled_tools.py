"""A tool that is listed and switched off is said at the start."""

import pytest

from tests.connectors.configuration.conftest import Folder

AGENTS = """\
agents:
  a: {provider: mock, model: m, tools: [Context, TOOL]}
  b: {provider: mock, model: m, tools: [TOOL]}
  c: {provider: mock, model: m, tools: ["*"]}
"""


@pytest.mark.parametrize(
    ("tool", "setting", "value"),
    [
        ("Bash", "LOOMLOG_BASH_ENABLED", "1"),
        ("Bench", "LOOMLOG_BENCH_ENABLED", "1"),
        ("Ledger", "LOOMLOG_LEDGER_PATH", "/tmp/ledger"),
    ],
)
def test_a_grant_that_nothing_can_follow_is_said_at_the_start(
    folder: Folder, tool: str, setting: str, value: str
) -> None:
    (line,) = folder.warnings(AGENTS.replace("TOOL", tool))
    assert line.startswith(f"loomlog.yaml:2: {tool} is granted to a and b but switched off")
    assert setting in line
    assert folder.warnings(AGENTS.replace("TOOL", tool), {setting: value}) == []

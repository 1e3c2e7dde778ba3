"""Warnings for tools that agents list and that a setting disables in this process.

Such an agent runs with one tool fewer, and nothing else would explain why its model never uses it.

Before: check.py, where the names are known to be tools. After: load.py reports the warnings.
"""

from loomlog.connectors.configuration.findings import ConfigurationFinding, join_words
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.configuration.tree import KeyPath, MappingNode, find_mark


def find_disabled_tools(
    configuration: Configuration, root: MappingNode, settings: Settings
) -> list[ConfigurationFinding]:
    """Return one warning for each such tool, at the first agent that names it; a pattern covers only enabled tools."""
    switches = {
        "Bash": (settings.bash_enabled, "LOOMLOG_BASH_ENABLED=1"),
        "Bench": (settings.bench_enabled, "LOOMLOG_BENCH_ENABLED=1"),
        "Ledger": (settings.ledger_path is not None, "LOOMLOG_LEDGER_PATH"),
    }
    findings: list[ConfigurationFinding] = []
    for tool, (is_on, setting) in switches.items():
        agents = [name for name, agent in configuration.agents.items() if tool in agent.tools]
        if is_on or not agents:
            continue
        tools = configuration.agents[agents[0]].tools
        path: KeyPath = ("agents", agents[0], "tools", tools.index(tool))
        mark = find_mark(root, path)
        message = f"{tool} is granted to {join_words(agents)} but switched off (see {setting}); agents run without"
        findings.append(ConfigurationFinding(message=message, file=mark.file, line=mark.line))
    return findings

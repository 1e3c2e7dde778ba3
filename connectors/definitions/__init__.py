"""Kinds of definitions: what a definition may hold, its hash, its differences, its tools. Pure.

Before: the blocks of connectors/configuration. After: services/application, families and the command line.
"""

from loomlog.connectors.definitions.canonical import canonical_json
from loomlog.connectors.definitions.difference import diff
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.kinds import KINDS, kind_of_route, kind_of_tool
from loomlog.connectors.definitions.problems import DefinitionProblem, Reason
from loomlog.connectors.definitions.schema_change import compare_output
from loomlog.connectors.definitions.tool_grants import covers

__all__ = [
    "KINDS",
    "DefinitionProblem",
    "Kind",
    "Reason",
    "canonical_json",
    "compare_output",
    "covers",
    "diff",
    "kind_of_route",
    "kind_of_tool",
]

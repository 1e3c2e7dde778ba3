"""The kind memorybackend: where the memory of agents lies. An unknown kind is refused and never replaced by another.

Its fields and rules are those of memory_backends.<name> in the files.

Before: kind.py, connectors/configuration/memory_block.py. After: kinds.py.
"""

from loomlog.connectors.configuration.memory_block import (
    MemoryBackendBlock,
    describe_pattern_problem,
    iter_backend_problems,
)
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.problems import DefinitionProblem


def require_tenant(field_name: str, pattern: str) -> None:
    """Raise DefinitionProblem unless the pattern differs between tenants."""
    if problem := describe_pattern_problem(pattern):
        raise DefinitionProblem("invalid_definition", f"{field_name}: {problem}")


def _check(backend: MemoryBackendBlock) -> None:
    for problem in iter_backend_problems(backend):
        name = ".".join(problem.path)
        if problem.is_missing:
            raise DefinitionProblem("missing_field", f"missing required field: {name}: it {problem.message}")
        raise DefinitionProblem("invalid_definition", f"{name}: {problem.message}")


MEMORY_BACKEND = Kind(name="memorybackend", tool="MemoryBackendDef", block=MemoryBackendBlock, check=_check)

"""What every declaration has: a name, sentences, types, and a place where it is served."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from typing_extensions import is_typeddict

from loomlog.services.application.operations.erasure import LIST_SUBJECTS
from loomlog.services.core.error_codes import ERRORS
from loomlog.services.core.operation_input import field_schemas
from loomlog.services.core.operations import AnyOperation, Fields, NoInput, NoOutput
from loomlog.services.families.registry import all_tools
from loomlog.services.grpc.rpcs import RPCS
from tests.services.api.serving import served
from tests.services.entities import MemoryEntities
from tests.services.operations.cases import OPERATIONS

SENTENCE = re.compile(r"[A-Z0-9].*\.\Z", re.DOTALL)
OTHERWISE_SERVED = {LIST_SUBJECTS, *(row.operation for row in RPCS)}
"""Operations of gRPC, and one that shares a route with another."""
every = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


@every
def test_an_operation_has_a_name_and_a_sentence(operation: AnyOperation) -> None:
    assert re.fullmatch(r"[a-z][a-z_]*\.[a-z0-9_]+", operation.name)
    assert SENTENCE.match(operation.summary)


@every
def test_an_operation_is_served(operation: AnyOperation) -> None:
    assert operation.http or operation.tool or operation.mcp or operation in OTHERWISE_SERVED


@every
def test_each_field_is_described(operation: AnyOperation) -> None:
    schemas = field_schemas(operation.input)
    assert {name for name, schema in schemas.items() if not schema.get("description")} == set()


@every
def test_the_answer_has_fields(operation: AnyOperation) -> None:
    assert operation.output is NoOutput or field_schemas(operation.output)


@every
def test_its_codes_are_in_the_table(operation: AnyOperation) -> None:
    assert set(operation.codes) <= set(ERRORS)


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(one.name for one in OPERATIONS).items() if count > 1] == []
    routes = Counter((http.route, http.op) for operation in OPERATIONS for http in operation.http)
    assert [route for route, count in routes.items() if count > 1] == []


def test_records_of_different_operations_have_different_names() -> None:
    records: dict[str, type[Any]] = {}
    for operation in OPERATIONS:
        of_routes = [http.output for http in operation.http if http.output is not None]
        for record in (operation.input, operation.output, *of_routes):
            if not isinstance(record, Fields) and record is not NoInput:
                assert issubclass(record, Struct) or is_typeddict(record)
                assert records.setdefault(record.__name__, record) is record, record.__name__


def test_tools_are_declared_and_have_each_op_once() -> None:
    ops = Counter((one.tool.tool, one.tool.op) for one in OPERATIONS if one.tool is not None)
    assert [op for op, count in ops.items() if count > 1] == []
    assert {tool for tool, _ in ops} == {tool.name for tool in all_tools()}


async def test_every_operation_has_a_handler(tmp_path: Path) -> None:
    entities = MemoryEntities()
    async with served(tmp_path, entity_commands=entities, entity_reads=entities) as here:
        assert [one.name for one in OPERATIONS if one.http and one not in here.service.dispatch(one).handlers] == []

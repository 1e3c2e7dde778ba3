"""Every code that is raised has a row, and every cell of a row is one that its surface has."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from loomlog.services.core.error_codes import ERRORS, STATUS_BY_CODE

SERVICES = Path(__file__).parents[3] / "services"
HTTP_OF_GRPC = {
    "INVALID_ARGUMENT": {400, 404, 413, 415, 422, 426},
    "NOT_FOUND": {404, 422},
    "FAILED_PRECONDITION": {400, 409, 410, 422, 503},
    "ALREADY_EXISTS": {409},
    "ABORTED": {409},
    "RESOURCE_EXHAUSTED": {413, 429, 503},
    "UNAVAILABLE": {502, 503},
    "UNAUTHENTICATED": {401},
    "PERMISSION_DENIED": {403, 422},
    "DEADLINE_EXCEEDED": {400, 408, 504},
    "INTERNAL": {500},
    "UNIMPLEMENTED": {400, 404, 405},
}
"""Statuses of gRPC, with those of HTTP that may go with them."""
JSONRPC_SPECIFIED = {-32600, -32601, -32602, -32603}
JSONRPC_OF_SERVERS = range(-32099, -31999)


def raised_codes(source: str) -> Iterator[str]:
    """Return the codes of all refusals of a module whose code is a text there, or a constant of the module."""
    tree = ast.parse(source)
    constants: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                constants |= _texts(target, node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refused" and node.args:
            for part in ast.walk(node.args[0]) if isinstance(node.args[0], ast.IfExp) else [node.args[0]]:
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value
                elif isinstance(part, ast.Name) and part.id in constants:
                    yield constants[part.id]


def _texts(target: ast.expr, value: ast.expr) -> dict[str, str]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=True)
        return {name: text for one, other in pairs for name, text in _texts(one, other).items()}
    if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
        return {target.id: value.value}
    return {}


def test_every_code_that_is_raised_has_a_row() -> None:
    raised = {
        code: path.name for path in SERVICES.rglob("*.py") for code in raised_codes(path.read_text(encoding="utf-8"))
    }
    assert len(raised) > 80  # the scan sees them
    assert {code: name for code, name in raised.items() if code not in ERRORS} == {}


def test_the_scan_sees_texts_choices_and_constants() -> None:
    source = 'A, B = "a", "b"\nRefused(A, "x")\nraise Refused("c" if x else B, "x")\nRefused(last.code, "x")'
    assert sorted(raised_codes(source)) == ["a", "b", "c"]


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_every_cell_is_one_that_its_surface_has(code: str) -> None:
    row = ERRORS[code]
    assert row.http in HTTP_OF_GRPC[row.grpc]
    assert row.jsonrpc in JSONRPC_SPECIFIED or row.jsonrpc in JSONRPC_OF_SERVERS
    assert (row.jsonrpc == -32603) == (row.grpc == "INTERNAL")
    assert (row.jsonrpc == -32001) == (row.grpc in ("UNAUTHENTICATED", "PERMISSION_DENIED"))
    if row.jsonrpc in (-32600, -32601):
        assert not row.is_tool_error


@pytest.mark.parametrize("code", sorted(set(ERRORS) - set(STATUS_BY_CODE)))
def test_a_code_that_is_shown_as_another_has_its_status(code: str) -> None:
    assert ERRORS[code].http == STATUS_BY_CODE[ERRORS[code].shown_as]

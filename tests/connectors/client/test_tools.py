"""A call of a tool served over Kafka is executed once and answered under its idempotency key."""

from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.client.tools import ResultFile, ToolFailed, _answer
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import RemoteToolRequest, RemoteToolResult
from loomlog.schemas.records import replace

REQUEST = RemoteToolRequest(
    request_id="r_1:1.0:1", idempotency_key="r_1:1.0", run_id="r_1", tenant="acme", agent="a", agent_id="a_1",
    tool="add", input='{"n": 2}',
    attempt=1, issued_at_ms=1, deadline_ms=4_000_000_000_000,
)  # fmt: skip


async def answered(request: Any, results: ResultFile, calls: list[dict[str, Any]]) -> tuple[Any, list[str]]:
    outcomes: list[str] = []

    async def add(arguments: dict[str, Any]) -> str:
        calls.append(arguments)
        if "n" not in arguments:
            raise ToolFailed('"n" is missing')
        return f"added {arguments['n']}"

    value = request if isinstance(request, bytes) else local_codec().encode(request)
    sent = await _answer(value, add, results, lambda outcome, *_: outcomes.append(outcome))
    return None if sent is None else local_codec().decode(sent).record, outcomes


async def test_a_repeated_request_gets_the_stored_result_also_after_a_restart(tmp_path: Path) -> None:
    calls: list[dict[str, Any]] = []
    first, _ = await answered(REQUEST, ResultFile(tmp_path / "results.json"), calls)
    again, outcomes = await answered(
        replace(REQUEST, request_id="r_1:1.0:2"), ResultFile(tmp_path / "results.json"), calls
    )
    assert calls == [{"n": 2}]
    assert isinstance(first, RemoteToolResult)
    assert (first.text, again.text, again.request_id, outcomes) == ("added 2", "added 2", "r_1:1.0:2", ["repeated"])


async def test_a_failure_is_an_error_result_and_stored_too(tmp_path: Path) -> None:
    results = ResultFile(tmp_path / "results.json")
    calls: list[dict[str, Any]] = []
    for _ in range(2):
        result, _ = await answered(replace(REQUEST, input="{}"), results, calls)
        assert (result.text, result.is_error) == ('"n" is missing', True)
    assert calls == [{}]


@pytest.mark.parametrize("value", [b"", b"no avro", replace(REQUEST, deadline_ms=1)], ids=["empty", "foreign", "late"])
async def test_late_requests_and_foreign_records_are_not_executed(value: Any, tmp_path: Path) -> None:
    calls: list[dict[str, Any]] = []
    assert (await answered(value, ResultFile(tmp_path / "results.json"), calls))[0] is None
    assert calls == []

"""Operations that are unavailable are asked again, and what the model is told when the time is over."""

import asyncio

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import ToolResult
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.runtime.tools import operation_calls
from loomlog.services.runtime.tools.operation_calls import call_operation

DONE = ToolResult(text="done")


class Operation:
    """An operation that fails with each of the errors in turn, the last one for ever unless None follows it."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.asked = 0

    async def __call__(self) -> ToolResult:
        self.asked += 1
        error = self.errors[0] if len(self.errors) == 1 else self.errors.pop(0)
        if error is not None:
            raise error
        return DONE


AWAY = Unavailable("loom.entity.events/0:25 is not read yet")
MAYBE = Unavailable("no answer from the owner", is_unknown=True)


@pytest.mark.parametrize(
    "error",
    [
        AWAY,
        MAYBE,
        Unavailable("no connection came free"),
        Unavailable("no answer", is_unknown=True),
        Transient("the key store is away", kind="unavailable"),
    ],
)
@pytest.mark.parametrize("is_read", [True, False])
async def test_an_outage_that_ends_in_time_is_not_told(
    error: Exception, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_calls, "ANSWER_S", 30.0)
    operation = Operation(error, error, error, None)
    assert await call_operation("Memory", operation, is_read=is_read, attempt=1) == DONE
    assert operation.asked == 4


@pytest.mark.parametrize(
    ("errors", "is_read", "attempt", "is_unknown"),
    [
        ((AWAY,), True, 1, False),
        ((AWAY,), False, 1, False),
        ((AWAY,), False, 2, True),  # the earlier attempt may have written
        ((AWAY,), True, 2, False),
        ((MAYBE,), False, 1, True),
        ((MAYBE, AWAY), False, 1, True),  # a later try that fails early does not undo an earlier one
        ((MAYBE,), True, 1, False),
    ],
)
async def test_past_its_time_a_write_that_may_have_happened_is_unknown(
    errors: tuple[Exception, ...], is_read: bool, attempt: int, is_unknown: bool
) -> None:
    operation = Operation(*errors)
    result = await call_operation("Memory", operation, is_read=is_read, attempt=attempt)
    assert (result.is_error, result.is_unknown) == (True, is_unknown)
    assert result.text == f"Memory has no answer: {errors[-1]}"
    assert operation.asked > 1


async def test_an_operation_that_hangs_ends_with_its_time() -> None:
    async def hang() -> ToolResult:
        await asyncio.Event().wait()
        return DONE

    assert (await call_operation("Memory", hang, is_read=False, attempt=1)).is_unknown
    assert not (await call_operation("Memory", hang, is_read=True, attempt=1)).is_unknown


async def test_a_refusal_is_final() -> None:
    operation = Operation(Refused("gone", "it is"))
    result = await call_operation("Memory", operation, is_read=False, attempt=2)
    assert (result.text, result.is_error, result.is_unknown) == ("Memory was refused (gone): it is", True, False)
    assert operation.asked == 1


async def test_what_can_never_be_read_is_asked_once() -> None:
    error = Unavailable("the content was erased")
    error.__cause__ = Permanent("no key", kind="not_found")
    operation = Operation(error)
    assert (await call_operation("Memory", operation, is_read=True, attempt=1)).is_error
    assert operation.asked == 1

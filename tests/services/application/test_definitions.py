from types import SimpleNamespace
from typing import Any, cast

import pytest

from loomlog.services.application.definitions import Definitions
from loomlog.services.core.refusals import Refused, Unavailable


async def refusal_of(error: Exception) -> Refused:
    async def fail() -> None:
        raise error

    operations = cast(Any, SimpleNamespace(table=None))
    definitions = Definitions(operations, clock_ms=lambda: 0, new_token=lambda: "t")
    with pytest.raises(Refused) as caught:
        await definitions.refusing("AgentDef", fail())
    return caught.value


async def test_a_refusal_of_an_operation_is_the_reason_of_its_tool() -> None:
    refused = await refusal_of(Refused("too_many", "500 versions"))
    assert (refused.code, refused.message) == ("tool_refused", "500 versions")
    assert refused.details == {"tool": "AgentDef", "reason": "too_many"}
    assert (await refusal_of(Refused("definition_conflict", "why"))).code == "definition_conflict"


async def test_keys_that_do_not_answer_are_not_what_is_wrong_with_a_call() -> None:
    refused = await refusal_of(Refused("keys_unavailable", "an older key", retry_after_s=1))
    assert (refused.code, refused.retry_after_s, refused.details) == ("keys_unavailable", 1, {})


@pytest.mark.parametrize(("is_unknown", "code"), [(True, "definition_pending"), (False, "definitions_unavailable")])
async def test_without_an_answer_a_change_may_still_be_made(is_unknown: bool, code: str) -> None:
    assert (await refusal_of(Unavailable("no owner", is_unknown=is_unknown))).code == code

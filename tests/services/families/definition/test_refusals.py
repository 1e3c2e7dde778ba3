"""How refusals of operations on definitions are shown to requests: tool_refused with a reason, save a few."""

import pytest

from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.api_fields import _refused_by

show = _refused_by("AgentDef")


def test_a_refusal_of_an_operation_is_the_reason_of_its_tool() -> None:
    refused = show(Refused("too_many", "500 versions"))
    assert (refused.code, refused.message) == ("tool_refused", "500 versions")
    assert refused.details == {"tool": "AgentDef", "reason": "too_many"}


@pytest.mark.parametrize("code", ["definition_conflict", "keys_unavailable"])
def test_what_is_not_wrong_with_the_call_keeps_its_code(code: str) -> None:
    assert show(Refused(code, "why", retry_after_s=1)).code == code

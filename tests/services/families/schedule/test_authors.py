"""What a schedule says about its author, so that it is no way around a limit of the author."""

from typing import Any

import pytest

from loomlog.connectors.definitions import KINDS
from loomlog.connectors.definitions.problems import DefinitionProblem
from loomlog.services.families.definition.composition import Stamp

SCHEDULE = KINDS["schedule"]
CONTENT: dict[str, Any] = {"agent": "helper", "schedule": "@daily"}


def test_a_restricted_author_writes_a_restricted_schedule_and_another_one_takes_responsibility() -> None:
    restricted = SCHEDULE.stamp(CONTENT, Stamp(operator_key_restricted=True).fields)
    assert restricted == CONTENT | {"operator_key_restricted": True}
    assert SCHEDULE.stamp(restricted, Stamp().fields) == CONTENT
    assert KINDS["agent"].stamp({"model": "m"}, Stamp(operator_key_restricted=True).fields) == {"model": "m"}


def test_the_schedule_of_an_isolated_user_works_for_this_user() -> None:
    stamp = Stamp(isolated_user="ivy")
    stamp.check(SCHEDULE, CONTENT | {"user_id": "ivy"})
    assert SCHEDULE.stamp(CONTENT | {"user_id": "ivy"}, stamp.fields)["isolated"] is True
    for content in (CONTENT, CONTENT | {"user_id": "ada"}):
        with pytest.raises(DefinitionProblem, match="works for no other user"):
            stamp.check(SCHEDULE, content)
    Stamp().check(SCHEDULE, CONTENT)

import gc
from typing import ClassVar

import pytest

from loomlog.schemas.generated.run_events import RECORDS
from loomlog.schemas.generated.values import Usage
from loomlog.schemas.records import Secretive, replace

SECRET = "hunter2-hunter2"


class Call(Secretive, frozen=True, kw_only=True):
    SECRETS: ClassVar[frozenset[str]] = frozenset({"key"})

    name: str
    key: str = ""


def test_a_record_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Usage().input_tokens = 1  # type: ignore[misc]


def test_a_copy_has_the_changes_and_a_field_that_is_not_there_is_refused() -> None:
    assert replace(Usage(input_tokens=1), output_tokens=2) == Usage(input_tokens=1, output_tokens=2)
    with pytest.raises(TypeError, match="tokens"):
        replace(Usage(), tokens=1)  # type: ignore[call-arg]  # the mistake that is refused


def test_the_collector_does_not_look_at_records() -> None:
    assert not gc.is_tracked(Usage())
    assert not any(record.__struct_config__.gc for record in RECORDS)


def test_records_are_made_by_names() -> None:
    with pytest.raises(TypeError, match="positional"):
        Usage(1)  # type: ignore[call-arg,misc]


def test_no_text_of_a_secretive_value_has_its_secrets() -> None:
    call = Call(name="a", key=SECRET)
    assert repr(call) == "Call(name='a')"
    assert call.__rich_repr__() == [("name", "a")]
    assert SECRET not in repr((call,)) + str(call) + repr(replace(call, name="b"))

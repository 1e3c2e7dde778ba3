import pytest

from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import parse_time_ms


@pytest.mark.parametrize(
    ("value", "at_ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00+0100", 0),
        ("1970-01-01 00:00:00.250Z", 250),
        ("1970-01-01T00:01Z", 60_000),
    ],
)
def test_times_are_understood_as_rfc_3339(value: str, at_ms: int) -> None:
    assert parse_time_ms("from", value) == at_ms


@pytest.mark.parametrize("value", ["", "now", "2026", "2026-02-30", "2026-01-01T25:00:00Z", "12:00", "1e9", "20260101"])
def test_other_times_are_refused_by_name(value: str) -> None:
    with pytest.raises(Refused, match="from is"):
        parse_time_ms("from", value)

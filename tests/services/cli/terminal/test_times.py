import pytest

from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.terminal.times import parse_since, to_rfc3339

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("90s", NOW_MS - 90_000),
        ("10m", NOW_MS - 600_000),
        ("24h", NOW_MS - 86_400_000),
        ("7d", NOW_MS - 7 * 86_400_000),
        ("2w", NOW_MS - 14 * 86_400_000),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T12:00:00", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
    ],
)
def test_a_time_is_an_age_or_rfc_3339(text, expected_ms):
    assert parse_since(text, NOW_MS) == expected_ms


@pytest.mark.parametrize("text", ["yesterday", "10", "-5m", "10 minutes", "2026-13-01"])
def test_anything_else_is_refused_with_the_option(text):
    with pytest.raises(UsageError, match="--until is "):
        parse_since(text, NOW_MS, option="--until")


def test_the_api_takes_rfc_3339():
    assert to_rfc3339("2026-01-31", option="--since") == "2026-01-31T00:00:00.000Z"
    assert to_rfc3339("", option="--since") == ""

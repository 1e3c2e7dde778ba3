"""The bound of open files: raised as far as the system lets us, never lowered."""

import resource
from typing import Any

import pytest

from loomlog.connectors.process.file_limits import raise_open_file_limit


@pytest.mark.parametrize(
    ("bounds", "wanted", "allowed", "asked"),
    [
        ((1_024, 20_000), 5_000, 5_000, [(5_000, 20_000)]),
        ((1_024, 4_096), 5_000, 4_096, [(4_096, 4_096)]),
        ((8_192, 20_000), 5_000, 5_000, []),
        ((1_024, resource.RLIM_INFINITY), 5_000, 5_000, [(5_000, resource.RLIM_INFINITY)]),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 5_000, 5_000, []),
        ((1_024, 1_024), 5_000, 1_024, []),
    ],
)
def test_the_bound_is_raised_as_far_as_the_system_lets_us(
    monkeypatch: pytest.MonkeyPatch, bounds: tuple[int, int], wanted: int, allowed: int, asked: list[Any]
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: bounds)
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: told.append(limits))
    assert (raise_open_file_limit(wanted), told) == (allowed, asked)

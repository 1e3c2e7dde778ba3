"""Operations that are unavailable are given up soon: what is asked again is shown by test_operation_calls.py."""

import pytest

from loomlog.services.runtime.tools import operation_calls


@pytest.fixture(autouse=True)
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_calls, "PAUSE_S", 0.001)
    monkeypatch.setattr(operation_calls, "ANSWER_S", 0.05)

import logging

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.retries import until_answered


class Away:
    """Does not answer so many times."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    async def ask(self) -> str:
        if self.left:
            self.left -= 1
            raise Transient("no answer", kind="timeout")
        return "answer"


async def test_a_call_is_retried_until_it_answers_and_few_failures_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    assert await until_answered(Away(9).ask, "the reader", retry_s=0.0) == "answer"
    assert caplog.messages == 4 * ["the reader is waiting, and tries again: no answer"] + ["the reader continues"]


async def test_what_answers_at_once_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert await until_answered(Away(0).ask, "the reader") == "answer"
    assert caplog.messages == []


async def test_another_failure_ends_the_retries() -> None:
    async def ask() -> None:
        raise Permanent("no such topic", kind="not_found")

    with pytest.raises(Permanent):
        await until_answered(ask, "the reader")

"""What is not found is looked for again at the end of the log."""

import asyncio

import pytest

from loomlog.connectors.errors import Transient
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.entities.absence import AbsenceCheck


class Log:
    """A log with further records, and a process that has read some of it."""

    def __init__(self, *, unread: int = 0, is_away: bool = False) -> None:
        self.records_read, self.asked = 10, 0
        self._unread, self._is_away = unread, is_away

    async def catch_up(self, *, timeout_s: float) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        if self._is_away:
            raise Transient("away", kind="unavailable")
        self.records_read, self._unread = self.records_read + self._unread, 0


class Shelf:
    """Finds a book in what was read of the log."""

    def __init__(self, log: Log, *, code: str = "not_found", needs: int = 11) -> None:
        self.looked = 0
        self._log, self._code, self._needs = log, code, needs

    async def find(self) -> str:
        self.looked += 1
        if self._log.records_read < self._needs:
            raise Refused(self._code, "it is not there")
        return "book"


async def test_what_another_process_has_just_written_is_found() -> None:
    shelf = Shelf(log := Log(unread=1))
    assert await AbsenceCheck([log]).try_twice(shelf.find) == "book"
    assert (shelf.looked, log.asked) == (2, 1)


@pytest.mark.parametrize(
    ("log", "code", "looked", "asked"),
    [
        (Log(), "not_found", 1, 1),
        (Log(is_away=True), "not_found", 1, 1),
        (Log(unread=1), "command_refused", 1, 0),
        (Log(unread=1), "no_such_code", 1, 0),
    ],
    ids=["nothing more", "log away", "another reason", "a newer code"],
)
async def test_a_refusal_stands(log: Log, code: str, looked: int, asked: int) -> None:
    shelf = Shelf(log, code=code, needs=99)
    with pytest.raises(Refused, match="it is not there"):
        await AbsenceCheck([log]).try_twice(shelf.find)
    assert (shelf.looked, log.asked) == (looked, asked)


async def test_what_is_missing_after_all_is_refused_once() -> None:
    shelf = Shelf(log := Log(unread=1), needs=99)
    with pytest.raises(Refused):
        await AbsenceCheck([log]).try_twice(shelf.find)
    assert (shelf.looked, log.asked) == (2, 1)


async def test_what_is_found_asks_nothing() -> None:
    shelf = Shelf(log := Log(), needs=1)
    assert await AbsenceCheck([log]).try_twice(shelf.find) == "book"
    assert log.asked == 0


async def test_many_refusals_share_a_question_that_begins_after_each() -> None:
    check, log = AbsenceCheck([log := Log(unread=1)]), log
    first = asyncio.create_task(check.try_twice(Shelf(log).find))
    await asyncio.sleep(0)  # its question is under way: what others look for may have been written after it
    others = [asyncio.create_task(check.try_twice(Shelf(log, needs=99).find)) for _ in range(100)]
    assert await first == "book"
    assert all(isinstance(one, Refused) for one in await asyncio.gather(*others, return_exceptions=True))
    assert log.asked == 2

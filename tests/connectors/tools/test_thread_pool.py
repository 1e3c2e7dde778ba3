import asyncio
import threading

import pytest

from loomlog.connectors.tools.thread_pool import CancellationToken, Deadline, ThreadPool, WorkCancelled


async def test_work_runs_beside_the_event_loop() -> None:
    assert await ThreadPool().run(lambda stop: threading.current_thread()) is not threading.current_thread()


async def test_cancelled_work_is_told_to_stop() -> None:
    begun, seen = threading.Event(), threading.Event()

    def work(stop: CancellationToken) -> None:
        begun.set()
        try:
            for _ in range(5000):
                stop.raise_if_cancelled()
                threading.Event().wait(0.001)
        except WorkCancelled:
            seen.set()

    call = asyncio.create_task(ThreadPool().run(work))
    await asyncio.to_thread(begun.wait, 5)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(seen.wait, 5)


async def test_cancelled_work_that_has_not_begun_never_begins() -> None:
    threads = ThreadPool(workers=1)
    release, ran = threading.Event(), threading.Event()
    busy = asyncio.create_task(threads.run(lambda stop: release.wait(30)))
    waiting = asyncio.create_task(threads.run(lambda stop: ran.set()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    await busy
    await threads.run(lambda stop: None)
    assert not ran.is_set()


def test_a_deadline_of_no_time_is_over() -> None:
    assert Deadline(0).is_expired
    assert not Deadline(60).is_expired

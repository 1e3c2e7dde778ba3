"""A campaign as a test of the suite: in a folder that goes away, within a bound, quiet about reconnects."""

import asyncio
import logging
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.chaos.campaign import Order, Outcome, campaign


async def short_campaign(order: Order, caplog: pytest.LogCaptureFixture, *, timeout_s: float) -> Outcome:
    """The outcome. Raises TimeoutError."""
    # Each reconnect to a killed broker would be a line.
    caplog.set_level(logging.CRITICAL, logger="aiokafka")
    # Not pytest's own temporary folder: those of three sessions are kept, and a broker's is large.
    folder = Path(tempfile.mkdtemp(prefix="loomlog-chaos-"))
    try:
        async with asyncio.timeout(timeout_s):
            return await campaign(folder, order, say=print)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

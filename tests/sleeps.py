"""Sleeps of one module take no time and are told to the test; everything else of the loop sleeps as before."""

import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest


def noted_sleeps(monkeypatch: pytest.MonkeyPatch, module: str, noted: Callable[[float], object]) -> None:
    """`noted` is called with the seconds of every `asyncio.sleep` that code of `module` begins."""
    real = asyncio.sleep

    def sleep(delay: float, result: object = None) -> Awaitable[object]:
        if sys._getframe(1).f_globals["__name__"] != module:
            return real(delay, result)
        noted(delay)
        return real(0, result)

    monkeypatch.setattr(asyncio, "sleep", sleep)

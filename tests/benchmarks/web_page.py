"""What is read from a page while it works: paints, bytes over the wire, frames, the moments at which texts appear.

Times of the page are those of its own clock, in milliseconds since the navigation began; Date.now() is the clock of
this machine, so moments in the page are compared with moments of other processes.

Before: the parts of web.py. After: Chromium.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page

from tests.benchmarks.closed_loop import percentile

WAIT_MS = 60_000
"""Longest wait for something to appear, after which the benchmark fails."""
WIDTH, HEIGHT = 1280, 800
SCROLL_S = 3.0
GOAL_FRAMES_PER_S = 60
SCREEN_MS = 1000 / GOAL_FRAMES_PER_S
"""Between two frames of a screen with 60 a second; a frame was missed when it takes 1.5 times as long."""


class Window:
    """A window of a person who was never here, with one page. `faults` has errors of its scripts and of its policy.

    Not that of tests/browser/chromium.py, which stops requests to other hosts: while requests are looked at, Chromium
    uses no cache, and each of them waits for this process.
    """

    def __init__(self, browser: Browser, origin: str) -> None:
        self.faults: list[str] = []
        self.postponed = 0
        """Calls that the api answered with 429; the page repeats them."""
        self.context = browser.new_context(base_url=origin, viewport={"width": WIDTH, "height": HEIGHT})
        self.context.set_default_timeout(WAIT_MS)
        self.page = self.context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.faults.append(f"a script failed: {error}"))

    def open(self, path: str) -> Page:
        """Go to a page, such as "/runs"; its files and calls may be under way still."""
        self.page.goto(f"/ui{path}", wait_until="commit")
        return self.page

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "status of 429" in message.text:
            self.postponed += 1
        elif message.type == "error":
            self.faults.append(f"console: {message.text}")


@contextmanager
def window(browser: Browser, origin: str) -> Iterator[Window]:
    """A window for a while. AssertionError when something happened in it that must not."""
    opened = Window(browser, origin)
    try:
        yield opened
    finally:
        opened.context.close()
    assert not opened.faults, opened.faults


class Wire:
    """Bytes that came over the wire, heads included, as the browser counts them."""

    def __init__(self, page: Page) -> None:
        self._bytes = 0
        self.requests = 0
        session = page.context.new_cdp_session(page)
        session.on("Network.responseReceived", self._began)
        session.on("Network.dataReceived", self._came)
        session.send("Network.enable")

    @property
    def kb(self) -> float:
        return self._bytes / 1000

    def _began(self, event: dict[str, Any]) -> None:
        if not event["response"].get("fromDiskCache"):
            self.requests += 1
            self._bytes += int(event["response"]["encodedDataLength"])

    def _came(self, event: dict[str, Any]) -> None:
        self._bytes += int(event["encodedDataLength"])


def first_paint_ms(page: Page) -> float:
    """When something was first to be seen."""
    ms: float = page.evaluate(
        "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? performance.now()"
    )
    return ms


def appears_ms(page: Page, selector: str, more: str = "") -> float:
    """When an element was there that `selector` finds and `more`, an expression over `element`, is true of."""
    handle = page.wait_for_function(
        f"() => {{ const element = document.querySelector({selector!r});"
        f" return element && ({more or 'true'}) ? performance.now() : 0; }}",
        polling="raf",
    )
    ms: float = handle.json_value()
    return ms


def scroll(page: Page, selector: str, pixels: int, seconds: float = SCROLL_S) -> dict[str, float]:
    """Scroll a box by so many pixels with every frame, back from its end, and time the frames."""
    times: list[float] = page.evaluate(SCROLL, [selector, pixels, seconds * 1000])
    return frames_of(times)


SCROLL = """
([selector, pixels, ms]) => new Promise((done) => {
  const box = document.querySelector(selector);
  const times = [];
  const began = performance.now();
  let step = pixels;
  const frame = (now) => {
    times.push(now);
    if (performance.now() - began > ms) return done(times);
    if (box.scrollTop + box.clientHeight >= box.scrollHeight - 1) step = -pixels;
    else if (box.scrollTop <= 0) step = pixels;
    box.scrollTop += step;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})
"""


def frames_of(times: Sequence[float]) -> dict[str, float]:
    """Frames a second, what half and 95 % of the frames take at most, and the share that the screen missed."""
    took = sorted(after - before for before, after in pairwise(times))
    if not took:
        return {"frames_per_s": 0.0, "p50_ms": 0.0, "p95_ms": 0.0, "missed_percent": 100.0}
    late = sum(ms > 1.5 * SCREEN_MS for ms in took)
    return {
        "frames_per_s": round(1000 * len(took) / (times[-1] - times[0]), 1),
        "p50_ms": round(percentile(took, 0.5), 1),
        "p95_ms": round(percentile(took, 0.95), 1),
        "missed_percent": round(100 * late / len(took), 1),
    }


def spread_of(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and the largest."""
    ordered = sorted(values)
    return {
        "p50": round(percentile(ordered, 0.5), 1),
        "p95": round(percentile(ordered, 0.95), 1),
        "max": round(ordered[-1] if ordered else 0.0, 1),
    }


def print_frames(name: str, row: dict[str, float]) -> None:
    """One line of frames."""
    print(
        f"    {name}: {row['frames_per_s']:.0f} frames/s (goal {GOAL_FRAMES_PER_S}), p50 {row['p50_ms']:.1f} "
        f"p95 {row['p95_ms']:.1f} ms, {row['missed_percent']:.0f} % late",
        flush=True,
    )

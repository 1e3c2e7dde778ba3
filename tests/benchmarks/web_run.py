"""A long run: how soon its page has rows and all of its records, and how it scrolls.

Before: web.py. After: web_page.py.
"""

from typing import Any

from playwright.sync_api import Browser, Page

from tests.benchmarks.web_page import Wire, appears_ms, frames_of, print_frames, scroll, spread_of, window

TIMES = 5
GOAL_MS = 500
PANES = (
    ("conversation", ".conversation", 60),
    ("events", '.table[aria-label="Records of the run"]', 60),
    ("timeline", ".timeline-box", 12),
)
"""The address of each view, the box that scrolls, and pixels with every frame: a quick hand on a wheel. A timeline has
few lanes, and is also zoomed."""
ROWS = ".conversation .turn-row"
ZOOM_S = 3.0


def measure_run(browser: Browser, origin: str, run_id: str, records: int) -> dict[str, Any]:
    """Opening and scrolling of a run that has so many records."""
    first, everything, kb = [], [], 0.0
    for number in range(TIMES + 1):
        with window(browser, origin) as here:
            counted = Wire(here.page)
            page = here.open(f"/runs/{run_id}")
            first_ms = appears_ms(page, ROWS)
            records_ms = appears_ms(page, '.moments input[type="range"]', f"Number(element.max) >= {records}")
            kb = counted.kb
            if number:  # the first warms browser and server up
                first.append(first_ms)
                everything.append(records_ms)
    with window(browser, origin) as here:
        frames = {name: pane_frames(here.open(f"/runs/{run_id}/{name}"), box, pixels) for name, box, pixels in PANES}
        frames["timeline, zoomed"] = zoom_frames(here.page)
    return {
        "records": records,
        "first_rows_ms": spread_of(first),
        "all_records_ms": spread_of(everything),
        "kb": round(kb, 1),
        "frames": frames,
    }


def pane_frames(page: Page, box: str, pixels: int) -> dict[str, float]:
    """Frames of a view that is scrolled as soon as it is there."""
    page.locator(box).first.wait_for()
    page.wait_for_load_state("networkidle")
    return scroll(page, box, pixels)


def zoom_frames(page: Page) -> dict[str, float]:
    """Frames of the timeline while a wheel zooms in and out of it, a little with each frame."""
    times: list[float] = page.evaluate(ZOOM, ZOOM_S * 1000)
    return frames_of(times)


ZOOM = """
(ms) => new Promise((done) => {
  const box = document.querySelector(".timeline-box");
  const place = box.getBoundingClientRect();
  const times = [];
  const began = performance.now();
  const frame = (now) => {
    times.push(now);
    const passed = performance.now() - began;
    if (passed > ms) return done(times);
    const deltaY = passed < ms / 2 ? -8 : 8;
    const clientX = place.left + place.width / 2;
    box.dispatchEvent(new WheelEvent("wheel", { deltaY, clientX, ctrlKey: true, bubbles: true, cancelable: true }));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})
"""


def print_run(figures: dict[str, Any]) -> None:
    """The figures for people."""
    first, everything = figures["first_rows_ms"], figures["all_records_ms"]
    print(
        f"  a run of {figures['records']} records: first rows p50 {first['p50']:.0f} p95 {first['p95']:.0f} ms, all "
        f"records p50 {everything['p50']:.0f} p95 {everything['p95']:.0f} ms (goal {GOAL_MS}); {figures['kb']:.0f} KB",
        flush=True,
    )
    for name, row in figures["frames"].items():
        print_frames(name, row)

"""The list of a great many runs: scrolled while its pages come, read to its end, and scrolled when all is there.

Before: web.py. After: web_page.py.
"""

import time
from typing import Any

from playwright.sync_api import Browser, Page

from tests.benchmarks.web_page import appears_ms, print_frames, scroll, window
from tests.benchmarks.web_paint import ROW

TABLE = '.table[aria-label="Runs"]'
PIXELS = 200
"""With every frame: 330 rows a second, which is a scroll bar that is dragged."""
READ_WITHIN_S = 120.0
ROW_PIXELS = 36


def measure_list(browser: Browser, origin: str, rows: int) -> dict[str, Any]:
    """Of a list with so many runs."""
    with window(browser, origin) as here:
        page = here.open("/runs")
        first_ms = appears_ms(page, ROW)
        frames = {"while pages come": scroll(page, TABLE, PIXELS)}
        began = time.monotonic()
        read_to_end(page, rows)
        whole_s = time.monotonic() - began
        frames["when all is there"] = scroll(page, TABLE, PIXELS)
        heap_mb = page.evaluate("() => performance.memory.usedJSHeapSize / 1e6")
    return {
        "rows": rows,
        "first_rows_ms": round(first_ms, 1),
        "whole_list_s": round(whole_s, 1),
        "heap_mb": round(heap_mb, 1),
        "frames": frames,
    }


def read_to_end(page: Page, rows: int) -> None:
    """Scroll to the end of what was read, again and again, until there are so many rows."""
    page.wait_for_function(
        f"""() => {{
          const box = document.querySelector('{TABLE}');
          box.scrollTop = box.scrollHeight;
          return box.querySelector(".rows").clientHeight >= {rows * ROW_PIXELS};
        }}""",
        polling="raf",
        timeout=READ_WITHIN_S * 1000,
    )


def print_list(figures: dict[str, Any]) -> None:
    """The figures for people."""
    print(
        f"  a list of {figures['rows']} runs: first rows {figures['first_rows_ms']:.0f} ms, all of it was read in "
        f"{figures['whole_list_s']:.1f} s and takes {figures['heap_mb']:.0f} MB",
        flush=True,
    )
    for name, row in figures["frames"].items():
        print_frames(name, row)

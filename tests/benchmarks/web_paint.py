"""How soon /ui/runs is there: its first paint, its first rows, and what goes over the wire for them.

    cold    a browser that was never here
    warm    the same browser again: files come from its cache, the index and the calls do not

Before: web.py. After: web_page.py.
"""

from typing import Any

from playwright.sync_api import Browser

from tests.benchmarks.web_page import Wire, appears_ms, first_paint_ms, spread_of, window

ROW = '.table[aria-label="Runs"] .rows .row'
TIMES = 10
GOAL_PAINT_MS, GOAL_KB = 300, 200


def measure_paint(browser: Browser, origin: str) -> dict[str, Any]:
    """Both, so many times; the first, which warms browser and server up, is not counted."""
    paints: dict[str, list[float]] = {"cold": [], "warm": []}
    rows: dict[str, list[float]] = {"cold": [], "warm": []}
    wire: dict[str, tuple[float, int]] = {}
    for number in range(TIMES + 1):
        with window(browser, origin) as here:
            for name in paints:
                counted = Wire(here.page)
                page = here.open("/runs")
                there_ms = appears_ms(page, ROW)
                wire[name] = (round(counted.kb, 1), counted.requests)
                page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length")
                if number:
                    paints[name].append(first_paint_ms(page))
                    rows[name].append(there_ms)
                page.goto("about:blank")
    return {
        name: {
            "first_paint_ms": spread_of(paints[name]),
            "first_rows_ms": spread_of(rows[name]),
            "kb": wire[name][0],
            "requests": wire[name][1],
        }
        for name in paints
    }


def print_paint(figures: dict[str, Any]) -> None:
    """The figures for people."""
    for name, row in figures.items():
        paint, rows = row["first_paint_ms"], row["first_rows_ms"]
        print(
            f"  /ui/runs, {name}: first paint p50 {paint['p50']:.0f} p95 {paint['p95']:.0f} ms (goal {GOAL_PAINT_MS}), "
            f"first rows p50 {rows['p50']:.0f} p95 {rows['p95']:.0f} ms; {row['kb']:.0f} KB (goal {GOAL_KB}) in "
            f"{row['requests']} answers",
            flush=True,
        )

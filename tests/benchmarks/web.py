"""How quick the web page is: `make bench-web`.

    python -m tests.benchmarks.web [--parts paint,run,token,tab,tabs,list] [--events 5000] [--rows 100000] [--json FILE]

A stack of its own, with everything on, and Chromium on the same machine; both share its cores, so figures of a machine
that is busy otherwise say nothing.

    paint    /ui/runs with and without a cache: first paint, first rows, bytes over the wire (web_paint.py)
    run      a run of so many records: opened, scrolled in three views (web_run.py)
    token    from a client of the api to the page, and from the model to that client (web_token.py)
    tab      CPU of the api for one tab on the live list (web_tabs.py)
    tabs     50 tabs, half of them on a live run: all live, CPU of the api, its answer times (web_tabs.py)
    list     a list of so many runs, filled straight into the read models: scrolled (web_list.py)

Goals, on 2 cores: first paint 300 ms and 200 KB; 500 ms for a run of 5,000 records, 60 frames a second; 50 ms for a
token; 2 % of a core for a tab.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from loomlog.services.cli.stack.ports import pick_port
from tests.benchmarks.main import Stack, client, new_report, options_parser, own_stack, write_report
from tests.benchmarks.web_list import measure_list, print_list
from tests.benchmarks.web_paint import measure_paint, print_paint
from tests.benchmarks.web_run import measure_run, print_run
from tests.benchmarks.web_tabs import measure_many_tabs, measure_one_tab, print_many_tabs, print_one_tab
from tests.benchmarks.web_token import measure_tokens, print_tokens
from tests.benchmarks.web_workload import KEY_ENV, api_client, configuration, fill_rows, long_run
from tests.browser.chromium import NoBrowser, find_chromium, launch
from tests.browser.scripted_model import ScriptedModel

PARTS = ("paint", "run", "token", "tab", "tabs", "list")
"""The list comes last: no event made its rows."""
PRINTERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "paint": print_paint,
    "run": print_run,
    "token": print_tokens,
    "tab": print_one_tab,
    "tabs": print_many_tabs,
    "list": print_list,
}
IN_FLIGHT, WARM_UP_S = 8, 10.0
"""Runs before anything is measured: for the list, and because the broker's compiler works until then."""


def main() -> int:
    """The exit code."""
    options = parse()
    try:
        find_chromium()
    except NoBrowser as missing:
        raise SystemExit(str(missing)) from missing
    report = new_report("web")
    port = pick_port()
    settings = {KEY_ENV: "a-key-of-the-bench"}
    with (
        closing(ScriptedModel(port)) as model,
        own_stack(configuration(port), **settings) as (stack, environment),
    ):
        client("topic", stack, environment, IN_FLIGHT, 0.0, WARM_UP_S)
        with sync_playwright() as playwright:
            browser = launch(playwright)
            report["browser"] = browser.version
            measure(report, options, browser, stack, model)
            browser.close()
    print_report(report)
    write_report(report, options.json)
    return 0


def parse() -> argparse.Namespace:
    parser = options_parser(__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--events", type=int, default=5_000, help="records of the long run")
    parser.add_argument("--rows", type=int, default=100_000, help="runs of the long list")
    options = parser.parse_args()
    if unknown := set(options.parts.split(",")) - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is unknown; expected some of {', '.join(PARTS)}")
    return options


def measure(
    report: dict[str, Any], options: argparse.Namespace, browser: Browser, stack: Stack, model: ScriptedModel
) -> None:
    """The parts, each printed when it is done."""
    origin = f"http://{stack.api}"

    def of_run() -> dict[str, Any]:
        run_id, records = long_run(api_client(stack), model, options.events)
        return measure_run(browser, origin, run_id, records)

    def of_list() -> dict[str, Any]:
        fill_rows(stack, options.rows)
        return measure_list(browser, origin, options.rows)

    measurers: dict[str, Callable[[], dict[str, Any]]] = {
        "paint": lambda: measure_paint(browser, origin),
        "run": of_run,
        "token": lambda: measure_tokens(browser, stack, origin, model),
        "tab": lambda: measure_one_tab(browser, stack, origin),
        "tabs": lambda: measure_many_tabs(browser, stack, origin, model),
        "list": of_list,
    }
    for part in PARTS:
        if part in options.parts.split(","):
            report[part] = measurers[part]()
            PRINTERS[part](report[part])


def print_report(report: dict[str, Any]) -> None:
    """All figures once more, for who has not watched."""
    print(f"\nThe web page; Chromium {report['browser']}, {report['machine']}, {report['at']}")
    for part, show in PRINTERS.items():
        if part in report:
            show(report[part])


if __name__ == "__main__":
    sys.exit(main())

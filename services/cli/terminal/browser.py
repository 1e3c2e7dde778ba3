"""The web page of the installation, opened in a browser of this desktop.

A token is never part of an address: it would stay in the history and in logs. The page asks for it once.

Before: services/cli/admin/ui.py, services/cli/runs/runs.py. After: services/api/ui_page.py serves the page.
"""

import webbrowser
from urllib.parse import quote

from rich.text import Text

from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console

PAGE_PATH = "/ui"


def run_page_path(run_id: str) -> str:
    """Return the path of a run's page."""
    return f"{PAGE_PATH}/runs/{quote(run_id, safe='')}"


def open_page(base_url: str, path: str, *, needs_token: bool, should_open: bool = True) -> None:
    """Print the address of a page, and open it."""
    address = f"{base_url.rstrip('/')}{path}"
    out = console()
    out.print(Text(address, style=NAME))
    if needs_token:
        out.print(Text("The page asks once for a token, such as the one in LOOMLOG_TOKEN.", style=DIM))
    if should_open and not webbrowser.open(address):
        out.print(Text("No browser could be opened here: open the address in yours.", style=WARNING))

"""`loomlog ui`: opens the web page in a browser, or writes it into a folder for a web server of one's own.

Before: services/cli/main.py. After: services/cli/terminal/browser.py, services/web/static_files.py.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import CliError, UsageError
from loomlog.services.cli.http.api import ApiNotFound
from loomlog.services.cli.http.requests import open_api
from loomlog.services.cli.terminal.browser import PAGE_PATH, open_page
from loomlog.services.cli.terminal.output import NAME, console
from loomlog.services.web.static_files import WebPageError, export_web_page, load_web_page


def ui(
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the address.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FOLDER",
            help="Write the files of the page into a new folder, the root of a web server of one's own.",
        ),
    ] = None,
) -> None:
    """Open the web page of this installation in a browser."""
    if export is not None:
        _export(export.expanduser().absolute())
        return
    base_url, needs_token = run(_find_page())
    open_page(base_url, PAGE_PATH, needs_token=needs_token, should_open=not no_open)


async def _find_page() -> tuple[str, bool]:
    """Return the address of the API and whether its page asks for a token. Raises CliError where there is no page."""
    async with open_api() as api:
        try:
            await api.get(f"{PAGE_PATH}/version.json")
        except ApiNotFound as error:
            raise CliError(f"The API at {api.base_url} serves no web page: {error}") from error
        login = await api.get(f"{PAGE_PATH}/login-config.json")
        return api.base_url, not login["open_mode"]


def _export(folder: Path) -> None:
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} is there already and not empty: name a new folder.")
        count = export_web_page(load_web_page(version("loomlog")), folder)
    except (OSError, WebPageError) as error:
        raise CliError(f"The page cannot be written into {folder}: {error}") from error
    out = console()
    out.print(Text.assemble(f"{count} files of the web page are in ", (str(folder), NAME), "."))
    out.print("Serve that folder, and ui/index.html for every other path below /ui. The API has to be at the same")
    out.print("origin: pass on /v1/, /ui/session, /ui/sign-in, /ui/logout and /ui/login-config.json to it")
    out.print("(docs/INSTALL.md).")

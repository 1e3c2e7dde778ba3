"""docs/DEPLOYMENT.md names every process with its port, only settings that exist, and links that lead somewhere."""

import re
from pathlib import Path

import pytest

from loomlog.connectors.configuration.settings import Settings, setting_rows

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "DEPLOYMENT.md"
TEXT = PAGE.read_text(encoding="utf-8")
LINES_MAX = 150
PROCESSES = sorted(path.parent.name for path in (ROOT / "services").glob("*/main.py") if path.parent.name != "cli")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("process", PROCESSES)
def test_the_page_has_a_row_for_every_process(process: str) -> None:
    assert f"\n| `{process}` |" in TEXT


def test_the_page_names_settings_that_exist_and_their_default_ports() -> None:
    named = set(re.findall(r"\bLOOMLOG_[A-Z_]+[A-Z]\b", TEXT))
    assert named <= {row.name for row in setting_rows()}
    defaults = Settings()
    ports = (defaults.listen_addr.rpartition(":")[2], defaults.runtime_metrics_port, defaults.insights_port)
    assert [port for port in ports if str(port) not in TEXT] == []


def test_the_links_of_the_page_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", TEXT)
    assert links
    for path, anchor in links:
        target = (PAGE.parent / path).resolve()
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_the_page_is_one_page() -> None:
    assert len(TEXT.splitlines()) <= LINES_MAX

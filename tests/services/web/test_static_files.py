"""The files of the page: what is read, how it is compressed and named, and which index is refused."""

import base64
import gzip
import hashlib
from pathlib import Path

import pytest

from loomlog.services.web import static_files
from loomlog.services.web.static_files import WebPageError, export_web_page, load_web_page

MAP = '{"imports": {"preact": "/ui/-/{{build}}/vendor/preact.js"}}'
INDEX = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>loomlog {{{{version}}}}</title>
<link rel="stylesheet" href="/ui/-/{{{{build}}}}/design.css">
<script type="importmap">{MAP}</script>
<script type="module" src="/ui/-/{{{{build}}}}/app.js"></script>
</head><body></body></html>
"""


def folder_of(folder: Path, index: str = INDEX, **more: bytes) -> Path:
    (folder / "vendor").mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(index)
    (folder / "app.js").write_text("import { h } from 'preact'\n" * 100)
    (folder / "vendor" / "preact.js").write_text("export const h = 1\n")
    (folder / "__init__.py").write_text("'no part of the page'\n")
    for name, content in more.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder


def test_the_files_of_the_page_are_read_and_no_others(tmp_path: Path) -> None:
    page = load_web_page("1.2.3", folder_of(tmp_path))
    assert sorted(page.files) == ["app.js", "vendor/preact.js"]
    assert page.files["app.js"].media_type == "text/javascript; charset=utf-8"


def test_build_and_version_are_in_the_index_and_the_policy_admits_its_import_map(tmp_path: Path) -> None:
    page = load_web_page("1.2.3", folder_of(tmp_path))
    text = page.index.content.decode()
    assert "loomlog 1.2.3<" in text
    assert f'src="/ui/-/{page.build}/app.js"' in text
    assert "{{" not in text
    filled = MAP.replace("{{build}}", page.build).encode()
    sha256 = base64.b64encode(hashlib.sha256(filled).digest()).decode()
    assert f"script-src 'self' 'sha256-{sha256}';" in page.content_security_policy
    assert "style-src 'self';" in page.content_security_policy
    assert "unsafe" not in page.content_security_policy


def test_an_import_map_over_several_lines_is_hashed_as_a_browser_sees_it(tmp_path: Path) -> None:
    index = '<script type="importmap">\r\n{"imports": {"a": "b && c"}}\r\n</script>'
    (tmp_path / "index.html").write_bytes(index.encode())
    page = load_web_page("1", tmp_path)
    sha256 = base64.b64encode(hashlib.sha256(b'\n{"imports": {"a": "b && c"}}\n').digest()).decode()
    assert sha256 in page.content_security_policy
    assert b"\r" not in page.index.content


def test_files_are_compressed_once_and_only_where_it_helps(tmp_path: Path) -> None:
    page = load_web_page("1", folder_of(tmp_path))
    app = page.files["app.js"]
    assert gzip.decompress(app.compressed) == app.content
    assert page.files["vendor/preact.js"].compressed == b""
    assert app.etag != app.gzip_etag


@pytest.mark.parametrize("changed", ["app.js", "vendor/preact.js", "index.html", "new.css"])
def test_the_build_is_another_when_any_file_changes(changed: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    before = load_web_page("1", folder)
    assert load_web_page("1", folder).build == before.build
    with (folder / changed).open("a") as file:
        file.write("\n")
    assert load_web_page("1", folder).build != before.build


def test_the_build_is_another_for_another_version(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    assert load_web_page("1", folder).build != load_web_page("2", folder).build


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("<p>\n<script>alert(1)</script>", "index.html:2: an inline script"),
        ('<script type="module">import "x"</script>', "an inline script"),
        ('<script type="importmap">{}</script><script type="importmap">{}</script>', "a second import map"),
        ("<style>p {}</style>", "<style>"),
        ('<p style="color: red">', "the attribute style of <p>"),
        ('<body onload="x()">', "the attribute onload of <body>"),
        ('<br style="x"/>', "the attribute style of <br>"),
    ],
)
def test_an_index_that_the_policy_would_block_is_refused(index: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(WebPageError, match=r"index\.html") as refused:
        load_web_page("1", folder_of(tmp_path, index))
    assert says in str(refused.value)


def test_a_folder_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WebPageError, match=r"index\.html is missing"):
        load_web_page("1", tmp_path)


def test_an_index_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_bytes(b"\xff\xfe")
    with pytest.raises(WebPageError, match=r"index\.html is no UTF-8"):
        load_web_page("1", tmp_path)


@pytest.mark.parametrize(("limit", "value"), [("FILES_MAX", 2), ("FILE_BYTES_MAX", 1_000), ("PAGE_BYTES_MAX", 2_900)])
def test_more_than_the_bounds_is_refused(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_files, limit, value)
    with pytest.raises(WebPageError, match=str(tmp_path)):
        load_web_page("1", folder_of(tmp_path))


def test_an_exported_page_has_the_layout_of_its_addresses(tmp_path: Path) -> None:
    page = load_web_page("1", folder_of(tmp_path / "from"))
    target = tmp_path / "to" / "ui"
    assert export_web_page(page, target.parent) == 4
    assert (target / "index.html").read_bytes() == page.index.content
    assert (target / "-" / page.build / "vendor" / "preact.js").read_bytes() == b"export const h = 1\n"
    assert page.build in (target / "version.json").read_text()


TABLE = b"""export const PAGES = [
  { path: "/runs", title: "Runs", load: () => import("./pages/runs.js") },
  { path: "/runs/:run/*view", hidden: true, load: () => import("./pages/run.js") },
];
"""


def test_the_modules_that_a_page_needs_at_once_are_known_by_its_address(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "pages").mkdir()
    (folder / "navigation.js").write_bytes(TABLE)
    (folder / "app.js").write_text('import "./navigation.js";\n')
    (folder / "pages" / "runs.js").write_text('import { row } from "./row.js";\nexport { x } from "../shared.js";\n')
    (folder / "pages" / "row.js").write_text('import { h } from "preact";\nimport { a } from "../shared.js";\n')
    (folder / "pages" / "run.js").write_text(
        """const VIEWS = [{ key: "said", load: () => import("./said.js") },\n"""
        """  { key: "row", load: () => import("./row.js") }];\n"""
        """const later = () => import("./later.js");\n"""
    )
    for name in ("said", "later"):
        (folder / "pages" / f"{name}.js").write_text("export default 1;\n")
    (folder / "shared.js").write_text("export const a = 1, x = 2;\n")
    (runs, of_runs), (run, of_run) = load_web_page("1", folder).modules
    assert of_runs == {"": ["navigation.js", "pages/runs.js", "pages/row.js", "shared.js"]}, "app.js is in the index"
    said = ["navigation.js", "pages/run.js", "pages/said.js"]
    assert of_run == {"": said, "said": said, "row": ["navigation.js", "pages/run.js", "pages/row.js", "shared.js"]}
    assert runs.fullmatch("/runs")
    assert not runs.fullmatch("/runs/r_1")
    assert [bool(run.fullmatch(path)) for path in ("/runs/r_1", "/runs/r_1/events", "/runs", "/runsx/r_1")] == [
        True,
        True,
        False,
        False,
    ]

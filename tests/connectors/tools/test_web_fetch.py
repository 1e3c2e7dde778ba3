import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.protocols import EffectClass, ToolResult
from loomlog.connectors.tools.thread_pool import ThreadPool
from loomlog.connectors.tools.web_client import RESPONSE_BYTES, WebClient
from loomlog.connectors.tools.web_fetch import TEXT_BYTES, WebFetchTool, extract_text
from tests.connectors.tools.given import context
from tests.connectors.tools.web_server import Names, Server, page, redirect, running


def tool() -> WebFetchTool:
    names = Names({"intra.example": [["127.0.0.1"]]})
    return WebFetchTool(WebClient(resolve=names.resolve, network=names), ThreadPool())


async def fetched(server: Server, path: str = "/") -> ToolResult:
    arguments = {"url": f"http://site.example:{server.port}{path}"}
    return await tool().call(arguments, context(allowed_hosts=("*",)))


async def test_a_page_becomes_its_text() -> None:
    async with running() as server:
        server.answers["/"] = page(
            "<!doctype html><html><head><title>Title</title><style>p { }</style></head><body><script>var a = '<p>';"
            "</script><h1>Head &amp; more</h1><p>one <b>two</b>&nbsp;\n  thr<i>ee</i></p><!-- no --><p>four</p></body>",
            "Content-Type: text/html",
        )
        result = await fetched(server)
        assert (result.text, result.is_error) == ("Title\n\nHead & more\n\none two\nthree\n\nfour", False)


async def test_a_page_that_is_no_markup_stays_as_it_is() -> None:
    async with running() as server:
        server.answers["/"] = page('{"a": "<b>  &amp;"}', "Content-Type: application/json")
        assert (await fetched(server)).text == '{"a": "<b>  &amp;"}'


async def test_an_error_page_says_that_it_is_one() -> None:
    async with running() as server:
        server.answers["/"] = page("<p>gone</p>", status="410 Gone")
        result = await fetched(server)
        assert (result.text, result.is_error) == ("[the server answered 410 Gone]\ngone", False)


async def test_a_long_page_is_cut_and_says_so() -> None:
    async with running() as server:
        server.answers["/"] = page("x" * (RESPONSE_BYTES + 1), "Content-Type: text/plain")
        assert (await fetched(server)).text.endswith("x\n[cut: only the first 262144 bytes of the response are shown]")
        server.answers["/"] = page("\xff".encode("latin-1") * TEXT_BYTES, "Content-Type: text/plain; charset=latin-1")
        assert (await fetched(server)).text.endswith("ÿ\n[cut: only the first 262144 bytes of the text]")


async def test_a_redirect_to_a_private_address_is_an_error_result() -> None:
    async with running() as server:
        server.answers["/"] = redirect(f"http://intra.example:{server.port}/secret")
        server.answers["/secret"] = page("secret")
        result = await fetched(server)
        assert result.is_error
        assert "has no public address" in result.text
        assert len(server.requests) == 1


async def test_only_a_url_is_taken() -> None:
    result = await tool().call({"url": "http://site.example/", "method": "POST"}, context(allowed_hosts=("*",)))
    assert result.is_error
    assert '"method" is unknown' in result.text
    assert tool().effect_class({}) is EffectClass.READ


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("a<br>b<br/>c", "a\nb\nc"),
        ("a<span>b</span>", "ab"),
        ("1 < 2 and <3", "1 < 2 and <3"),
        ("a <", "a <"),
        ("<SCRIPT src=x>bad</SCRIPT >good", "good"),
        ("<script>never closed", ""),
        ("<scripted>fine", "fine"),
        ("a<!-- never closed <p>b", "a"),
        ("a<!--->b-->c", "ac"),
        ("a<p title='never closed", "a"),
        ("&lt;b&gt; &quot;x&quot; &#39; &#x27; &hellip; &unknown;", "<b> \"x\" ' ' … &unknown;"),
        ("a&#0;b", "a�b"),
        ("<p>a</p>\n\n\n\n<p>b</p>", "a\n\nb"),
        ("</>a<?x?>b<!x>c", "abc"),
        ("<pre>a  b\n  c</pre>", "a b\nc"),
    ],
)
def test_markup_and_what_is_left_of_it(markup: str, text: str) -> None:
    assert extract_text(markup) == text


@given(st.text(alphabet="<>/!-&; abscriptyle\n'\"=#", max_size=200))
def test_any_page_becomes_text_without_empty_lines_in_a_row(markup: str) -> None:
    text = extract_text(markup)
    assert "\n\n\n" not in text
    assert "  " not in text
    assert text == text.strip()


@pytest.mark.parametrize("piece", ["<", "<!--", "<script>", "<p ", "</", "&#", "<a href='", "<!", "< "])
def test_a_page_made_to_be_slow_is_not(piece: str) -> None:
    page = piece * (RESPONSE_BYTES // len(piece))
    started = time.process_time()
    extract_text(page)
    assert time.process_time() - started < 30

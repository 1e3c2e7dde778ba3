"""`loomlog memory`: requests, tables, and input that is refused before anything is sent."""

import json
from pathlib import Path
from typing import Any

import pytest

from loomlog.services.cli.errors import FAILED, USAGE_ERROR
from tests.services.cli.fake_api import FakeApi, Scripted
from tests.services.families.memory.commands.conftest import memory, ok

AT = {"X-Loomlog-Position": "loom.entity.events/1:7"}
KEY = "/v1/_memory/scopes/user/ada/keys/k"
WRITTEN: dict[str, Any] = {"scope": "user", "scope_id": "ada", "key": "k", "embedded": False}
REEMBED: dict[str, Any] = {"scope": "user", "scope_id": "ada", "dry_run": True, "rows_total": 40, "rows_to_reembed": 12}


def test_a_value_is_sent_as_it_was_given(fake: FakeApi) -> None:
    fake.answers["PUT", KEY] = Scripted(body=WRITTEN | {"embed_warning": "pending", "revision": 4}, headers=AT)
    options = ("--embed", "--ttl", "90", "--if-revision", "3", "--tenant", "acme", "--idempotency-key", "once")
    shown = ok(memory("set", "user", "ada", "k", "[1.10, 1234567890123456789]", *options))
    assert shown == [
        "k is set, revision 4 event loom.entity.events/1:7",
        "It cannot be found by its meaning yet: pending.",
    ]
    (request,) = fake.asked
    assert request.content == (
        b'{"value": [1.10, 1234567890123456789], "embed": true, "ttl_seconds": 90, "if_revision": 3}'
    )
    assert (request.headers["idempotency-key"], dict(request.url.params)) == ("once", {"tenant": "acme"})


def test_a_nearly_full_scope_is_told(fake: FakeApi) -> None:
    usage = {"bytes": 900, "quota_bytes": 1000, "keys": 2}
    body = WRITTEN | {"usage": usage, "usage_warning": "the scope has 900 of 1000 bytes: delete what is not needed"}
    fake.answers["PUT", KEY] = Scripted(body=body, headers=AT | {"X-Loomlog-Memory-Usage": "bytes=1"})
    shown = ok(memory("set", "user", "ada", "k", "1"))
    assert shown[1:] == ["user ada 900 B of 1000 B (90 %) in 2 keys", body["usage_warning"]]
    assert json.loads(memory("set", "user", "ada", "k", "1", "--json").stdout) == body | {
        "position": AT[next(iter(AT))]
    }


def test_removing_in_json(fake: FakeApi) -> None:
    fake.answers["DELETE", KEY] = Scripted(status=204, headers=AT)
    shown = json.loads(memory("rm", "user", "ada", "k", "--json").stdout)
    assert shown == {"scope": "user", "scope_id": "ada", "key": "k", "position": "loom.entity.events/1:7"}


def test_hits_are_a_table_with_scores_and_ranks(fake: FakeApi) -> None:
    hits = [
        {"key": "tea", "kind": "fact", "value": "green\x1b[2J", "score": 0.91234, "rank_score": 0.0325,
         "embedded_with": {"provider": "stub", "model": "m"}, "ranks": {"lexical": 2, "semantic": 1}},
        {"key": "cup", "kind": "note", "value": {"n": 1}, "score": 0.0, "rank_score": 0.016,
         "embedded_with": None, "ranks": {"lexical": 1, "semantic": None}},
    ]  # fmt: skip
    body = {"entries": hits, "truncated": True, "dedup_dropped": 1, "rank_note": "no embedder: by words only"}
    fake.answers["POST", "/v1/_memory/search"] = Scripted(body=body)
    query = ("search", "which tea", "--scope-id", "ada", "--top-k", "2", "--source", "facts", "--source", "notes")
    assert ok(memory(*query, "--prefix", "t", "--tenant", "acme")) == [
        "KEY KIND SCORE RANK LEXICAL SEMANTIC VALUE",
        'tea fact 0.912 0.033 2 1 "green\\u001b[2J"',
        'cup note - 0.016 1 - {"n": 1}',
        "1 near copy left out.",
        "There are more hits: --top-k, at most 50.",
        "no embedder: by words only",
    ]
    assert fake.bodies("/v1/_memory/search") == [
        {"query": "which tea", "scope": "user", "scope_id": "ada", "top_k": 2, "prefix": "t",
         "sources": ["facts", "notes"]}
    ]  # fmt: skip
    assert dict(fake.asked[0].url.params) == {"tenant": "acme"}
    assert json.loads(memory(*query, "--json").stdout) == body
    fake.answers["POST", "/v1/_memory/search"] = Scripted(body={"entries": [], "truncated": False})
    assert ok(memory("search", "tea", "--scope", "tenant")) == ["No hits."]
    assert fake.bodies("/v1/_memory/search")[-1]["scope_id"] == ""


def test_embedding_again_is_shown_before_it_is_done(fake: FakeApi) -> None:
    embedder = {"provider": "openai", "model": "text-embedding-3-small", "dimension": 1536}
    body = REEMBED | {"current_embedder": embedder, "sample_keys": ["a", "b"]}
    fake.answers["POST", "/v1/_memory/reembed"] = Scripted(body=body)
    assert ok(memory("reembed", "user", "ada")) == [
        "user ada: 12 of 40 entries set with embed need a vector",
        "embedder openai text-embedding-3-small, 1536 dimensions",
        "a",
        "b",
        "Nothing was changed; --yes embeds them again, which the provider may charge for.",
    ]
    assert dict(fake.asked[0].url.params) == {"scope": "user", "scope_id": "ada", "dry_run": "true"}
    done = REEMBED | {"dry_run": False, "rows_reembedded": 11, "rows_failed": 1, "failed_keys": ["bad"]}
    fake.answers["POST", "/v1/_memory/reembed"] = Scripted(body=done)
    result = memory("reembed", "user", "ada", "--yes")
    assert (result.exit_code, result.stdout.splitlines()) == (
        FAILED,
        ["user ada: 11 entries embedded again", "1 entry could not be embedded:", "bad"],
    )
    assert fake.asked[1].url.params["dry_run"] == "false"
    assert json.loads(memory("reembed", "tenant", "--yes", "--json").stdout) == done
    assert "scope_id" not in fake.asked[2].url.params


def test_lists_that_go_on_and_a_scope_without_a_bound(fake: FakeApi) -> None:
    entry = {"key": "k", "value": "x" * 100, "updated_at": "2027-01-15T08:00:00.000Z", "expires_at": None}
    fake.answers["GET", "/v1/_memory/scopes/user/ada/keys"] = Scripted(body={"entries": [entry], "truncated": True})
    shown = ok(memory("ls", "user", "ada", "--after", "j", "--limit", "1"))
    assert (shown[1].endswith("… 2027-01-15T08:00:00.000Z -"), shown[2]) == (True, "There are more: --after k")
    assert dict(fake.asked[0].url.params) == {"after": "j", "limit": "1"}
    usage = {"bytes": 2048, "quota_bytes": -1, "keys": 1}
    fake.answers["GET", "/v1/_memory/usage"] = Scripted(body={"usage": usage, "keys_max": 10_000})
    assert ok(memory("usage", "user", "ada"))[0] == "user ada 2.0 KiB in 1 key"


def test_a_fact_shows_where_it_was_learnt_and_an_archived_one_what_took_its_place(fake: FakeApi) -> None:
    provenance = {"class": "preference", "origin": "consolidator", "source_session_id": "s_1", "source_run_id": "r_9",
                  "origin_available": True, "spans": [{"run_id": "r_9", "seq": 3, "start": 0, "end": 9}]}  # fmt: skip
    source = {"origin": "consolidator", "run_id": "r_2", "agent": "memory/consolidator"}
    entry = {"key": "k", "value": [1], "revision": 4, "bytes": 3, "created_at": "C", "updated_at": "U",
             "source": source, "provenance": provenance}  # fmt: skip
    fake.answers["GET", KEY] = Scripted(body={"entry": entry})
    shown = ok(memory("get", "user", "ada", "k"))
    assert "changed U by memory/consolidator (consolidator) in run r_2" in shown
    learnt = "learnt in run r_9; session s_1; r_9 seq 3, characters 0 to 9"
    assert f"fact preference by consolidator; {learnt}" in shown
    versions = [
        {"revision": 6, "op": "expire", "at": "T3", "position": "P3"},
        {"revision": 5, "op": "supersede", "at": "T2", "position": "P2", "by_key": "n", "reason": "moved",
         "source": source},
    ]  # fmt: skip
    fake.answers["GET", f"{KEY}/history"] = Scripted(body={"versions": versions, "next": None})
    shown = ok(memory("log", "user", "ada", "k"))
    assert shown[1:] == [
        "6 T3 expire - - - - P3",
        "5 T2 supersede memory/consolidator (consolidator) r_2 - by n: moved P2",
        "`loomlog runs show r_2` shows the run that changed it.",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("get", "usr", "ada", "k"), "SCOPE is 'usr'; did you mean user?: expected one of agent, user, tenant."),
        (("get", "k"), "expected one of agent, user, tenant"),
        (("get", "user", "k"), "Expected user SCOPE_ID KEY, not user k."),
        (("get", "tenant"), "Expected tenant KEY, not tenant."),
        (("get", "tenant", "acme", "k"), "which has no id: leave 'acme' out"),
        (("get", "user", "", "k"), "expected 1 to 256 characters"),
        (("get", "user", "a\nb", "k"), "characters that can be printed"),
        (("get", "user", "ada", ""), "it has 0 characters, expected 1 to 512"),
        (("get", "user", "ada", "k" * 513), "it has 513 characters"),
        (("get", "user", "ada", "a\tb"), "characters that cannot be printed"),
        (("set", "user", "ada", "k"), "Expected user SCOPE_ID KEY VALUE"),
        (("set", "user", "ada", "k", "likes", "tea"), "Words with spaces need quotes"),
        (("set", "user", "ada", "k", "red"), "VALUE is not JSON"),
        (("set", "user", "ada", "k", ""), "VALUE is not JSON"),
        (("set", "user", "ada", "k", "NaN"), "no JSON that can be kept"),
        (("set", "user", "ada", "k", "1e400"), "no JSON that can be kept"),
        (("set", "user", "ada", "k", '"\\ud800"'), "half a surrogate pair"),
        (("set", "user", "ada", "k", '"\\u0000"'), "the character NUL"),
        (("set", "user", "ada", "k", "[" * 110 + "]" * 110), "nested deeper than 100 levels"),
        (("set", "user", "ada", "k", "[" * 10_000 + "]" * 10_000), "VALUE is nested too deeply"),
        (("set", "user", "ada", "k", '1}, "embed": true, "x": {"y": 2'), "VALUE is not JSON"),
        (("set", "user", "ada", "k", "x" * 300_000, "--text"), "at most 262144 are kept"),
        (("set", "user", "ada", "k", "1", "--ttl", "-1"), "--ttl is '-1': expected seconds"),
        (("set", "user", "ada", "k", "1", "--ttl", "0"), "--ttl is '0'"),
        (("set", "user", "ada", "k", "1", "--ttl", "9999999999d"), "at most a hundred years"),
        (("set", "user", "ada", "k", "1", "--ttl", "soon"), "a time like 90s, 24h, 7d"),
        (("set", "user", "ada", "k", "1", "--if-revision", "-1"), "--if-revision"),
        (("set", "user", "ada", "k", "--file", "/no/such/file"), "cannot be read: No such file or directory"),
        (("set", "user", "ada", "k", "1", "--file", "/dev/null"), "Expected user SCOPE_ID KEY, not"),
        (("at", "user", "ada", "k"), "When? Give one of --time"),
        (("at", "user", "ada", "k", "--time", "1h", "--event", "loom.entity.events/1:1"), "When? Give one of"),
        (("at", "user", "ada", "k", "--time", "yesterday"), "--time is 'yesterday'"),
        (("at", "user", "ada", "k", "--event", "17"), "--event: '17' is not a position"),
        (("search", " ", "--scope-id", "ada"), "QUERY is empty"),
        (("search", "tea"), "--scope-id is missing: which user?"),
        (("search", "tea", "--scope", "all", "--scope-id", "ada"), "SCOPE is 'all'"),
        (("search", "tea", "--scope-id", "ada", "--top-k", "51"), "--top-k"),
        (("ls", "--prefix", "a"), "name a scope and its id"),
        (("ls", "users"), "did you mean user?"),
        (("ls", "user", "ada", "k"), "Expected user SCOPE_ID, not user ada k."),
        (("drop", "user"), "Expected user SCOPE_ID, not user."),
        (("log", "user", "ada", "k", "--limit", "101"), "--limit"),
    ],
)
def test_bad_input_is_refused_with_a_sentence_and_nothing_is_sent(
    fake: FakeApi, arguments: tuple[str, ...], text: str
) -> None:
    result = memory(*arguments)
    assert (result.exit_code, text in result.stderr) == (USAGE_ERROR, True), result.output
    assert not fake.asked


def test_a_file_that_is_too_large_or_no_text_is_refused(fake: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "value"
    for content, text in ((b" " * 3_000_000, "has more than 1572864 bytes"), (b"\xff", "is not UTF-8")):
        file.write_bytes(content)
        result = memory("set", "user", "ada", "k", "--file", str(file))
        assert (result.exit_code, text in result.stderr) == (USAGE_ERROR, True), result.output
    result = memory("set", "user", "ada", "k", "-", stdin=b"\xff\xfe")
    assert (result.exit_code, "stdin is not UTF-8" in result.stderr) == (USAGE_ERROR, True)
    assert not fake.asked

import json
from functools import partial
from typing import Any

import pytest

from tests.services.cli import fake_api
from tests.services.cli.fake_api import Scripted, refused

AT = {"X-Loomlog-Position": "loom.subject.keys/0:7"}
COVERED = {"keys": 1, "runs": 2, "live_runs": 1, "events": 9, "frames": 5, "blobs": 0}
NOTHING = {"counts": dict.fromkeys(COVERED, 0), "total": 0}
RESIDUE = {"rows": 0, "scopes": 0, "sessions_examined": 1, "truncated": False}
ERASED = {
    "key_id": "ab12",
    "made_at": None,
    "erased": True,
    "erasure": {
        "erasure_id": "e_1", "at": "2026-01-01", "by": "op", "reason": "asked", "position": "loom.subject.keys/0:7"
    },
}  # fmt: skip
PRESENT = {"key_id": "cd34", "made_at": "2026-01-01", "erased": False, "erasure": None}


def report(*keys: dict[str, Any], in_clear: int = 0, truncated: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "tenant": "acme",
        "subject": "ivy",
        "known": True,
        "encrypted": True,
        "tier1_covered": {"counts": COVERED, "total": 5},
        "tier2_uncovered": {"counts": {"frames": in_clear, "blobs": 0}, "total": in_clear},
        "tier3_residue": {**RESIDUE, "truncated": truncated},
        "keys": list(keys),
        "erasures": [key["erasure"] for key in keys if key["erased"]],
        "errors": [],
        "notes": ["dead letters are not examined here"],
    } | more


def with_memory(**counts: int) -> dict[str, Any]:
    return {"counts": {**COVERED, **counts}, "total": 5}


invoke = partial(fake_api.invoke, "subjects")


def test_subjects_are_listed_and_shown(fake):
    fake.answers["GET", "/v1/_erasure"] = Scripted(body={"tenant": "acme", "subjects": ["ivy", "(tenant)"]})
    assert invoke("ls", "--tenant", "acme").stdout == "ivy\n(tenant)\n"
    fake.answers["GET", "/v1/_erasure"] = Scripted(body=report(PRESENT, in_clear=3, truncated=True))
    shown = invoke("show", "ivy", "--tenant", "acme").stdout.splitlines()
    assert shown[0] == "2 runs (1 under way), 1 key, 5 encrypted texts"
    assert shown[1] == "3 texts in clear, which cannot be erased"
    assert "of a part" in shown[2]


def test_without_a_confirmation_nothing_is_erased(fake):
    body = {**report(), "dry_run": True, "deleted": {}, "retained": {"events": "9 events stay"}}
    fake.answers["POST", "/v1/_erasure"] = Scripted(body=body)
    result = invoke("erase", "ivy", "--tenant", "acme")
    assert result.stdout.splitlines()[:2] == [
        "Nothing was erased. To do it: --reason WHY --confirm ivy",
        "9 events stay",
    ]
    assert fake.bodies("/v1/_erasure") == [{"subject": "ivy", "dry_run": True}]


def test_an_erasure_shows_what_it_did_and_where_it_is_recorded(fake):
    done = {"dry_run": False, "deleted": {"keys": 1, "frames": 5, "blobs": 0}, "cancelled_runs": ["r_1"]}
    body = {**report(), **done, "retained": {}}
    fake.answers["POST", "/v1/_erasure"] = Scripted(body=body, headers=AT)
    result = invoke("erase", "ivy", "--tenant", "acme", "--reason", "asked", "--confirm", "ivy")
    assert result.stdout.splitlines()[:2] == [
        "ivy of acme is erased: 1 key, 5 texts unreadable  event loom.subject.keys/0:7",
        "cancelled r_1",
    ]
    assert fake.bodies("/v1/_erasure") == [
        {"subject": "ivy", "dry_run": False, "reason": "asked", "confirm": "ivy"}
    ]  # fmt: skip
    as_json = invoke("erase", "ivy", "--tenant", "acme", "--reason", "asked", "--confirm", "ivy", "--json").stdout
    assert json.loads(as_json)["position"] == "loom.subject.keys/0:7"


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nobody_is_called_erased_of_whom_a_text_stays_readable(fake, more):
    done = {"dry_run": False, "deleted": {"keys": 1, "frames": 5, "blobs": 0}, "cancelled_runs": []}
    body = {**report(in_clear=2), **done, "retained": {"in_clear": "2 texts in 1 runs lie in clear"}}
    fake.answers["POST", "/v1/_erasure"] = Scripted(body=body, headers=AT)
    result = invoke("erase", "ivy", "--tenant", "acme", "--reason", "asked", "--confirm", "ivy", *more)
    assert result.exit_code == 1
    if not more:
        first, second = result.stdout.splitlines()[:2]
        assert first.startswith("ivy of acme is not erased: 2 texts can still be read. Done: 1 key, 5 texts unreadable")
        assert second == "2 texts in 1 runs lie in clear"


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (report(ERASED), 0),
        (report(ERASED, PRESENT), 1),
        (report(ERASED, in_clear=1), 1),
        (report(ERASED, truncated=True), 1),
        (report(PRESENT), 1),
        (report(), 1),
        (report(ERASED, errors=["the search index of memory could not be examined: away"]), 1),
        (report(ERASED, tier1_covered=with_memory(memory_vectors=1)), 1),
        (report(ERASED, tier1_covered=with_memory(memory_entries=1)), 1),
        (report(ERASED, tier1_covered=with_memory(memory_versions=4, memory_entries=0)), 0),
        (report(erasures=[ERASED["erasure"]]), 0),
        (report(erasures=[{**ERASED["erasure"], "in_clear": True}]), 1),
        (report(erasures=[{**ERASED["erasure"], "in_clear": False}]), 0),
        (report(tier1_covered=NOTHING), 0),
        (report(PRESENT, tier1_covered=NOTHING), 1),
        (report(tier1_covered=NOTHING, known=False), 0),
    ],
)
def test_a_proof_holds_only_when_nothing_can_be_read(fake, found, code):
    fake.answers["GET", "/v1/_erasure"] = Scripted(body=found)
    result = invoke("proof", "ivy", "--tenant", "acme")
    assert result.exit_code == code
    if found["known"]:
        assert ("Nothing of it can be read: " in result.stdout) == (code == 0)
        assert ("Nothing of it can be read: it was erased." in result.stdout) == (code == 0 and bool(found["erasures"]))
    else:
        assert "There is nothing of ivy in acme." in result.stdout
    if ERASED in found["keys"]:
        assert result.stdout.startswith("ab12 erased 2026-01-01 by op: asked  event loom.subject.keys/0:7")
    options = json.loads(invoke("proof", "ivy", "--tenant", "acme", "--json").stdout)
    assert (options["erased"], options["readable"]) == (code == 0 and bool(found["erasures"]), code == 1)


MEMORY = {
    "memory_entries": 2, "memory_versions": 5, "memory_databases": 1, "memory_database_bytes": 2048,
    "memory_pending": 0, "memory_index_rows": 3, "memory_vectors": 1, "memory_cached_embeddings": 1,
}  # fmt: skip


def test_memory_is_shown_before_and_after_an_erasure(fake):
    text = "2 keys, 5 changes, 1 database, 3 index rows, 1 vector, 1 cached embedding"
    fake.answers["GET", "/v1/_erasure"] = Scripted(body=report(PRESENT, tier1_covered=with_memory(**MEMORY)))
    assert invoke("show", "ivy", "--tenant", "acme").stdout.splitlines()[1] == f"in memory: {text}"
    done = {"dry_run": False, "deleted": {**COVERED, **MEMORY}, "cancelled_runs": [], "incomplete": []}
    fake.answers["POST", "/v1/_erasure"] = Scripted(body={**report(), **done, "retained": {}}, headers=AT)
    result = invoke("erase", "ivy", "--tenant", "acme", "--reason", "asked", "--confirm", "ivy")
    assert (result.exit_code, result.stdout.splitlines()[1]) == (0, f"of its memory: {text}")


def test_an_erasure_that_left_something_says_so_and_exits_1(fake):
    done = {
        "dry_run": False,
        "deleted": COVERED,
        "cancelled_runs": [],
        "incomplete": ["the databases were not deleted"],
    }
    fake.answers["POST", "/v1/_erasure"] = Scripted(body={**report(), **done, "retained": {}}, headers=AT)
    result = invoke("erase", "ivy", "--tenant", "acme", "--reason", "asked", "--confirm", "ivy")
    assert result.exit_code == 1
    first, second = result.stdout.splitlines()[:2]
    assert first.startswith("ivy of acme is not erased completely, repeat it. Done: 1 key, 5 texts unreadable")
    assert second == "the databases were not deleted"


def test_an_erasure_needs_a_reason(fake):
    result = invoke("erase", "ivy", "--tenant", "acme", "--confirm", "ivy")
    assert (result.exit_code, fake.asked) == (2, [])
    assert "--reason" in result.stderr


def test_a_dry_run_of_somebody_unknown_fails_as_the_erasure_would(fake):
    fake.answers["POST", "/v1/_erasure"] = refused(404, "not_found", "there is nothing of ivy in acme")
    result = invoke("erase", "ivy", "--tenant", "acme")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "here is nothing of ivy in acme" in result.stderr


def test_keys_are_wrapped_anew(fake):
    fake.answers["POST", "/v1/_erasure/rewrap"] = Scripted(body={"wrapped": 2})
    assert invoke("rewrap").stdout == "2 keys rewrapped\n"

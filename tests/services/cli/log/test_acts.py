"""`loomlog audit acts` over the API."""

from functools import partial

from tests.services.cli import fake_api
from tests.services.cli.fake_api import Scripted

ACT = {
    "act_id": "one", "at": "2026-01-31T12:00:00.000Z", "tenant_id": "acme", "who": "ada", "token": "ci",
    "transport": "cli", "request_id": "q_1", "what": "hook.remove", "target": "hook_1", "outcome": "done",
    "before": {"name": "mask"}, "after": {"deleted": "hook_1"},
}  # fmt: skip
REFUSED = {**ACT, "act_id": "two", "outcome": "refused", "code": "insufficient_scope", "count": 7}


invoke = partial(fake_api.invoke, "audit", "acts")


def test_acts_are_shown_with_what_they_changed(fake):
    fake.answers["GET", "/v1/_audit"] = Scripted(body={"acts": [ACT, REFUSED], "next": "abc"})
    head, done, refused, more = invoke("--who", "ada", "--what", "hook", "--since", "2026-01-31").stdout.splitlines()
    assert head.split() == ["AT", "WHO", "TOKEN", "OVER", "WHAT", "TARGET", "OUTCOME", "CHANGE"]
    assert done.endswith('done                           {"name":"mask"} -> {"deleted":"hook_1"}')
    assert "refused insufficient_scope x7" in refused
    assert more == "There are more: --cursor abc"
    sent = dict(fake.asked[0].url.params)
    assert sent == {"limit": "50", "who": "ada", "what": "hook", "since": "2026-01-31T00:00:00.000Z"}
    assert fake.asked[0].headers["user-agent"] == "loomlog-cli"


def test_no_acts_is_said_and_a_wrong_time_is_refused(fake):
    fake.answers["GET", "/v1/_audit"] = Scripted(body={"acts": [], "next": ""})
    assert invoke().stdout == "There are no such acts.\n"
    assert invoke("--json").stdout == '{"acts":[],"next":""}\n'
    assert "--since is 'soon'; expected" in invoke("--since", "soon").stderr

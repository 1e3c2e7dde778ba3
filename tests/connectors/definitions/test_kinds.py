from typing import Any

import pytest

from loomlog.connectors.cron import find_cron_problem
from loomlog.connectors.definitions import KINDS, DefinitionProblem, kind_of_route, kind_of_tool
from tests.connectors.definitions import examples


def test_the_table_of_kinds():
    assert [
        (kind.route, kind.tool, kind.id_prefix, kind.forks_promote, kind.has_verify) for kind in KINDS.values()
    ] == [
        ("agentdef", "AgentDef", "def_", False, True),
        ("skilldef", "SkillDef", "sdf_", False, True),
        ("teamdef", "TeamDef", "tdf_", False, True),
        ("mcpserverdef", "MCPServerDef", "mdf_", False, True),
        ("scheduledef", "ScheduleDef", "def_", True, False),
        ("webhookdef", "WebhookDef", "def_", True, False),
        ("memorybackenddef", "MemoryBackendDef", "def_", True, False),
        ("documentsourcedef", "DocumentSourceDef", "def_", True, False),
        ("a2aagentdef", "A2AAgentDef", "def_", True, False),
        ("a2aservercarddef", "A2AServerCardDef", "def_", True, False),
    ]
    for name, kind in KINDS.items():
        assert kind.name == name
        assert kind_of_route(kind.route) is kind_of_tool(kind.tool) is kind
    with pytest.raises(KeyError):
        kind_of_route("agent")


def refused(kind: str, /, **changes: Any) -> str:
    """Return the refusal of the first example of a kind with changed fields; None leaves a field out."""
    with pytest.raises(DefinitionProblem) as caught:
        KINDS[kind].compose("x", {**examples.OVERLAYS[kind][0], **changes})
    return f"{caught.value.reason} {caught.value.message}"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string"}, 'must be "object"'),
        ({"type": "object", "properties": {"a": {"$ref": "http://x.example"}}}, "leaves the schema"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "/properties/a/pattern"),
        ({"type": "object", "description": "x" * 65_536}, "at most 65536"),
        ([], "expected a mapping"),
    ],
)
def test_an_output_schema_that_cannot_be_used_is_refused_when_it_is_written(schema: Any, problem: str) -> None:
    message = refused("agent", output_schema=schema)
    assert message.startswith("invalid_definition output_schema: ")
    assert problem in message


def state(name: str, kind: str, **handler: Any) -> dict[str, Any]:
    return {"state": name, "handler": {"kind": kind, **handler}}


def edge(source: str, target: str, label: str = "success") -> dict[str, str]:
    return {"from": source, "to": target, "on": label}


A, END = state("a", "agent", agent="x"), state("end", "terminal")
PARALLEL = {"agents": ["x"], "consolidator": "c"}


@pytest.mark.parametrize(
    ("states", "transitions", "problem"),
    [
        ([], [], "missing_field missing required field: states"),
        ([A, A, END], [edge("a", "end")], 'states[1].state: "a" is the name of another state'),
        ([state(" ", "terminal")], [], "missing required field: states[0].state"),
        ([state("b", "terminal")], [], 'entry: there is no state "a"'),
        ([state("a", "agent"), END], [], "missing required field: states[0].handler.agent"),
        ([state("a", "consolidator"), END], [], "missing required field: states[0].handler.agent"),
        ([state("a", "agent", agent="x", agents=["y"])], [], "states[0].handler.agents: a handler of kind agent has"),
        ([state("a", "parallel", consolidator="c")], [], "missing required field: states[0].handler.agents"),
        ([state("a", "parallel", agents=["x", ""])], [], "missing required field: states[0].handler.agents[1]"),
        ([state("a", "parallel", agents=["x"])], [], "missing required field: states[0].handler.consolidator"),
        ([state("a", "parallel", wait="some", **PARALLEL)], [], "states[0].handler.wait: expected all, any"),
        ([state("a", "parallel", wait="at_least:0", **PARALLEL)], [], "states[0].handler.wait: expected all, any"),
        ([state("a", "terminal", agent="x")], [], "states[0].handler: a terminal state has no agent"),
        ([state("a", "vote")], [], "states[0].handler.kind: expected 'agent', 'parallel'"),
        ([{"state": "a", "handler": {}}], [], "missing_field missing required field: states[0].handler.kind"),
        ([{"state": "a"}], [], "missing_field missing required field: states[0].handler"),
        ([A, END], [edge("b", "end")], 'transitions[0].from: there is no state "b"'),
        ([A, END], [edge("a", "b")], 'transitions[0].to: there is no state "b"'),
        ([A, END], [edge("a", "end", "failure")], "transitions[0].on: expected success, pushback:<reason>"),
        ([A, END], [edge("a", "end", "pushback: ")], "transitions[0].on: expected success"),
        ([A, END], [edge("a", "end", "successful")], "transitions[0].on: expected success"),
        ([A, END], [edge("a", "end"), edge("end", "a")], 'transitions[1].from: "end" is terminal'),
        ([A, END], [edge("a", "end"), edge("a", "a")], 'transitions[1].on: "a" has another transition with this label'),
        ([A, END], [{"to": "end", "on": "success"}], "missing_field missing required field: transitions[0].from"),
        ([A, END], [{**edge("a", "end"), "form": "a"}], 'unknown field "form" in overlay.transitions[0]; did you mean'),
        ([A, END], [edge("a", "a")], 'states: "end" cannot be reached from "a"'),
        ([A, state("b", "agent", agent="x")], [edge("a", "b")], 'states: "b" is a dead end'),
    ],
)
def test_a_graph_that_cannot_be_walked_is_refused(states: list[Any], transitions: list[Any], problem: str):
    assert problem in refused("team", entry="a", states=states, transitions=transitions)


def test_a_graph_of_one_state_and_one_with_a_loop_are_taken():
    team = KINDS["team"]
    assert team.compose("x", {"entry": "end", "states": [END]}) == {"entry": "end", "states": [END]}
    loop = [edge("a", "end"), edge("a", "a", "pushback:more")]
    assert team.compose("x", {"entry": "a", "states": [A, END], "transitions": loop})["transitions"] == loop
    assert "less than or equal to 1000" in refused("team", max_iterations=1_001)
    states = [state("a", "parallel", wait="at_least:9", **PARALLEL), END]
    assert team.compose("x", {"entry": "a", "states": states, "transitions": [edge("a", "end")]})["states"] == states


def test_lists_of_a_fork_replace_those_of_its_team():
    team = KINDS["team"]
    parent = team.compose("x", examples.TEAM)
    fork = team.compose("x", {"colors": {"states": {"end": "red"}}, "max_iterations": 0}, parent)
    assert fork == {**{key: parent[key] for key in ("entry", "states", "transitions")}, "colors": fork["colors"]}
    assert fork["colors"] == {"states": {"end": "red"}}


@pytest.mark.parametrize("body", ["", " \r\n\t"])
def test_a_skill_without_a_text_is_refused(body: str):
    assert refused("skill", body=body).startswith("missing_field missing required field: body")
    assert refused("skill", body=None).startswith("missing_field missing required field: body")


@pytest.mark.parametrize("path", ["/a", "../a", "a/../b", "a/./b", "a//b", "", "a/", "a\\b", "a\nb", "x" * 256, ".."])
def test_a_path_that_leaves_the_skill_is_refused(path: str):
    assert "expected a relative path" in refused("skill", files={path: "x"})


def test_limits_of_a_skill():
    skill = KINDS["skill"]
    largest = {"body": "b" * 131_072, "files": {f"{number}/..x": "f" * 16_384 for number in range(64)}}
    assert skill.compose("x", largest) == largest
    assert refused("skill", body="b" * 131_073) == "too_large body has 131073 bytes; at most 131072 are taken"
    assert refused("skill", files={"a": "f" * 1_048_577}).startswith("too_large files has 1048577 bytes")
    many = {str(number): "" for number in range(65)}
    assert refused("skill", files=many) == "too_many files: 65 files; at most 64 are taken"
    assert "files.a: expected text" in refused("skill", files={"a": None})


@pytest.mark.parametrize(
    "url",
    ["x", "/mcp", "ftp://a.example", "http://", "https:///x", "http://a b/", "http://[::1", "http://a:99999/"],
)
def test_an_address_that_is_not_absolute_is_refused(url: str):
    assert "url: expected an address" in refused("mcpserver", url=url)


def test_servers_that_are_processes_and_passwords_in_addresses_are_refused():
    assert "without user and password" in refused("mcpserver", url="https://me:secret@a.example/")
    assert "secret" not in refused("mcpserver", url="https://me:secret@a.example/")
    assert refused("mcpserver", transport="stdio").startswith("invalid_definition transport: a server that is started")
    assert refused("mcpserver", command="rm").startswith("unknown_field overlay.command is a key of files; a server")
    assert refused("mcpserver", discovered_tools=[]).startswith("unknown_field overlay.discovered_tools is set by")
    assert refused("mcpserver", url="") == "missing_field missing required field: url"
    assert refused("mcpserver", transport=None) == "missing_field missing required field: transport"
    server = KINDS["mcpserver"]
    content = {**server.compose("x", examples.MCP_SERVER), "discovered_tools": [{"name": "shout"}]}
    assert server.compose("x", {"description": "e"}, content)["discovered_tools"] == [{"name": "shout"}]
    assert server.hash("x", server.compose("x", examples.MCP_SERVER)) == server.hash("x", content)


@pytest.mark.parametrize(
    "text",
    [
        "*/5 * * * *",
        "0 9 * * 1-5",
        "0 0 1,15 * ?",
        "0-59/15 0 1 JAN,feb-dec sun",
        "1/10 * * * mon-5",
        "@hourly",
        "@daily",
        "@annually",
        "@every 1s",
        "@every 90m",
        "@every 1h30m0.5s",
        "CRON_TZ=Europe/Berlin 0 6 * * *",
        "TZ=UTC @daily",
        " 0 0 * * * ",
    ],
)
def test_usual_times_are_taken(text: str):
    assert find_cron_problem(text) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected five fields"),
        ("whenever", "expected five fields"),
        ("* * * *", "expected five fields"),
        ("* * * * * *", "expected five fields"),
        ("60 * * * *", "minute: expected numbers from 0 to 59"),
        ("* 24 * * *", "hour: expected"),
        ("* * 0 * *", "day of the month: expected"),
        ("* * * 13 *", "month: expected"),
        ("* * * * 8", "day of the week: expected"),
        ("5-1 * * * *", "minute: expected"),
        ("*-5 * * * *", "minute: expected"),
        ("*/0 * * * *", "minute: expected a step of at least 1"),
        ("1,,2 * * * *", "minute: expected"),
        ("-1 * * * *", "minute: expected"),
        ("jan * * * *", "minute: expected"),
        ("* * * janu *", "month: expected"),
        ("² * * * *", "minute: expected"),
        (f"{'9' * 5000} * * * *", "minute: expected"),
        ("@reboot", "expected @every or one of"),
        ("@every", "expected @every or one of"),
        ("@every soon", "expected a duration"),
        ("@every 10", "expected a duration"),
        ("@every 500ms", "expected a duration of at least a second"),
        ("@every -1h", "expected a duration"),
        ("TZ=../etc 0 0 * * *", "expected the name of a time zone"),
    ],
)
def test_other_times_are_refused(text: str, problem: str):
    assert problem in find_cron_problem(text)
    assert f"schedule: {problem}" in refused("schedule", schedule=text) or not text


def test_mistakes_of_schedules():
    assert refused("schedule", schedule=None).startswith("missing_field missing required field: schedule")
    assert refused("schedule", user_tier_schedules={"a": "@daily"}).startswith("invalid_definition schedule and user_t")
    assert "user_tier_schedules.a: expected five" in refused("schedule", schedule="", user_tier_schedules={"a": "x"})
    assert refused("schedule", agent=None) == "missing_field missing required field: agent"
    assert "agent: expected at most 128" in refused("schedule", agent="../a")
    assert "catch_up_max: expected greater" in refused("schedule", catch_up_max=-1)
    assert "timezone: expected a name" in refused("schedule", timezone="../../etc/passwd")
    assert "tenant_id is a key of files" in refused("schedule", tenant_id="other")
    assert "isolated is set by the server" in refused("schedule", isolated=False)
    assert "prompt[0].content: expected at least one item" in refused(
        "schedule", prompt=[{"role": "user", "content": []}]
    )
    for hook, missing in (
        ({"kind": "channel.publish"}, "channel"),
        ({"kind": "mcp.call", "server": "s"}, "tool"),
        ({"kind": "memory.set", "scope": "user"}, "key"),
        ({"kind": "http"}, "url"),
    ):
        assert refused("schedule", on_complete=[hook]).endswith(f"missing required field: on_complete[0].{missing}")
    assert "on_complete[0].kind: expected" in refused("schedule", on_complete=[{"kind": "mail"}])


def test_secrets_in_definitions_are_refused_and_not_repeated():
    for kind in ("schedule", "webhook"):
        for field in ("user_credentials", "user_credentials_from_env"):
            message = refused(kind, **{field: {"github": "ghp_topsecret"}})
            assert f"{field}.github: expected" in message
            assert "topsecret" not in message
    assert "topsecret" not in refused("webhook", auth={"kind": "hmac", "signing_secret_env": "topsecret"})


AUTH = examples.WEBHOOK["auth"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"delivery": "pigeon"}, "delivery: expected 'spawn' or 'channel'"),
        ({"agent": ""}, "missing_field missing required field: agent"),
        ({"channel": "c"}, "channel: delivery spawn has no channel"),
        ({"delivery": "channel", "agent": "", "channel": ""}, "missing_field missing required field: channel"),
        ({"delivery": "channel", "channel": "c"}, "agent: delivery channel has no agent"),
        ({"delivery": "channel", "channel": "c", "agent": ""}, "delivery: a channel gets no credentials"),
        ({"auth": None}, "missing_field missing required field: auth"),
        ({"auth": {}}, "missing_field missing required field: auth.kind"),
        ({"auth": {"kind": "hmac"}}, "missing_field missing required field: auth.signing_secret_env"),
        ({"auth": {"kind": "bearer"}}, "missing_field missing required field: auth.bearer_token_env"),
        ({"auth": {"kind": "none", "bearer_token_env": "A"}}, "auth.bearer_token_env: kind none has no secret"),
        ({"auth": {**AUTH, "algorithm": "md5"}}, "auth.algorithm: expected 'sha256'"),
        ({"auth": {**AUTH, "header": "X: Y"}}, "auth.header: expected the name of a header"),
        ({"payload_mapping": {"goal": ""}}, "payload_mapping.goal: expected a text, or a path"),
        ({"payload_mapping": {"goal": "$.a[*]"}}, "payload_mapping.goal: expected a text, or a path"),
        ({"payload_mapping": {"user_bearer": "$.a"}}, "payload_mapping: expected the keys goal, user_id"),
        ({"rate_limit": {"burst": -1}}, "rate_limit.burst: expected greater than or equal to 0"),
        ({"sync_response": {"timeout_ms": 0}}, "sync_response.timeout_ms: expected greater than or equal to 1"),
        ({"sync_response": {"timeout_ms": 60_001}}, "sync_response.timeout_ms: expected less than or equal to 60000"),
        ({"user_tier": "gold"}, "unknown_field overlay.user_tier is a key of files"),
    ],
)
def test_mistakes_of_webhooks(changes: dict[str, Any], problem: str):
    assert problem in refused("webhook", **changes)


def test_a_webhook_without_a_proof_is_taken():
    webhook = {"agent": "a", "auth": {"kind": "none"}}
    assert KINDS["webhook"].compose("x", webhook) == webhook


@pytest.mark.parametrize(
    ("kind", "changes", "problem"),
    [
        ("memorybackend", {"kind": "cloud"}, "kind: expected 'inprocess' or 'remote'"),
        ("memorybackend", {"config": None}, "missing_field missing required field: config.base_url"),
        ("memorybackend", {"config": {"base_url": "x"}}, "config.base_url: expected an address"),
        (
            "memorybackend",
            {"tenancy_strategy": {"kind": "key_per_tenant"}},
            "env_pattern: expected a pattern with {ten",
        ),
        (
            "memorybackend",
            {"tenancy_strategy": {"kind": "shared_key_with_prefix", "prefix_pattern": "all"}},
            "tenancy_strategy.prefix_pattern: expected a pattern with {tenant_id}",
        ),
        (
            "memorybackend",
            {"tenancy_strategy": {"kind": "key_per_tenant", "env_pattern": "LOOMLOG_{tenant_id}"}},
            "tenancy_strategy.env_pattern: expected a longer pattern",
        ),
        (
            "memorybackend",
            {"config": {"base_url": "https://a.example", "api_key_env": "LOOMCYCLE_AUTH_TOKEN"}},
            "config.api_key_env: LOOMCYCLE_AUTH_TOKEN is a secret of the installation",
        ),
        ("memorybackend", {"config": {"base_url": "https://u:p@a.example"}}, "without user and password"),
        ("documentsource", {"config": None}, "missing_field missing required field: config"),
        ("documentsource", {"config": {}}, "missing_field missing required field: config.base_url"),
        ("documentsource", {"config": {"base_url": "file:///etc"}}, "config.base_url: expected an address"),
        ("documentsource", {"config": {"base_url": "https://a.example", "api_key_env": "a"}}, "the NAME of an env"),
        ("a2aagent", {"agent_card_url": "https://a.example"}, "agent_card_url comes with endpoint or binding"),
        ("a2aagent", {"endpoint": ""}, "missing_field missing required field: agent_card_url"),
        ("a2aagent", {"binding": None}, "missing_field missing required field: binding"),
        ("a2aagent", {"endpoint": "x"}, "endpoint: expected an address"),
        ("a2aagent", {"expected_skills": [{}]}, "missing_field missing required field: expected_skills[0].id"),
        ("a2aservercard", {"name": None}, "missing_field missing required field: name"),
        ("a2aservercard", {"name": ""}, "name: expected at least 1 character"),
        (
            "a2aservercard",
            {"exposed_agents": [{"agent_name": "a", "skill_id": "s"}, {"agent_name": "b", "skill_id": "s"}]},
            'exposed_agents[1].skill_id: "s" is the skill of another agent',
        ),
    ],
)
def test_mistakes_of_the_small_kinds(kind: str, changes: dict[str, Any], problem: str):
    assert problem in refused(kind, **changes)


def test_a_card_address_of_a_fork_replaces_the_endpoint():
    peer = KINDS["a2aagent"]
    card = {"agent_card_url": "https://a.example/card.json"}
    assert peer.compose("x", card, {"endpoint": "https://a.example", "binding": "rest"}) == card
    assert peer.compose("x", {"endpoint": "a.example:443", "binding": "grpc"}, card)["binding"] == "grpc"


@pytest.mark.parametrize(
    ("oauth", "problem"),
    [
        (
            {"client_id": "c", "client_secret": "s3cret"},
            "oauth.client_secret: expected the name of a stored credential",
        ),
        ({"client_id": "c", "client_secret": "$cred:a $cred:b"}, "expected the name of a stored credential"),
        ({"client_secret": "$cred:a"}, "client_secret needs a client_id"),
        ({"grant": "client_credentials", "client_id": "c"}, "needs client_id and client_secret"),
    ],
)
def test_the_secret_of_a_client_is_a_reference_in_definitions(oauth: dict[str, str], problem: str) -> None:
    text = refused("mcpserver", transport="http", url="https://a.example", oauth=oauth)
    assert text.startswith("invalid_definition oauth")
    assert problem in text

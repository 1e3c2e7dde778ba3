"""The operations of approvals. Pure.

The paths of the policy come before those of calls: a run is never called `policy`.

Before: __init__.py. After: handlers.py, and run_handlers.py for calls of runs.
"""

from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from loomlog.services.core.access.rules import own_data, requires
from loomlog.services.core.access.scopes import RUNS_READ, TENANT
from loomlog.services.core.operations import PRINTABLE, Effect, Http, Input, McpTool, NoInput, Operation, Output, Tag

TAG = Tag(name="Approvals", description="Rules for tool calls, and calls that wait for the approval of people.")
BODY_BYTES_MAX = 1024 * 1024
VERSIONS_MAX = 200

RunId = Annotated[str, Meta(min_length=1, max_length=140, description="Id of the run.")]
ApprovalId = Annotated[str, Meta(min_length=1, max_length=140, description="Id of the approval.")]
Reason = Annotated[str, Meta(max_length=2_000, description="Reason, kept with the decision.")]
Surface = Annotated[
    str,
    Meta(
        max_length=40,
        min_length=1,
        pattern=PRINTABLE,
        description="Where the person decided, such as page, cli or the name of a chat.",
    ),
]
RuleList = Annotated[
    list[dict[str, Any]],
    Meta(max_length=1_000, description="Rules in the order in which they are tried; docs/OPERATING.md has their form."),
]
Version = Annotated[int, Meta(ge=0, le=2**53, description="Number of a version; 0: the one in force.")]


class ApprovalsList(Input, frozen=True, kw_only=True):
    """Filter of the calls that need approval."""

    status: Annotated[
        str,
        Meta(
            max_length=200,
            description="pending, resolved (approved), declined (denied), timed_out, cancelled with commas between, "
            "or all.",
        ),
    ] = ""
    run_id: Annotated[str, Meta(max_length=140, description="Only of this run.")] = ""
    limit: Annotated[int, Meta(ge=1, le=500, description="Most approvals of one answer.")] = 100
    cursor: Annotated[str, Meta(max_length=2_000, description="Where the answer before ended.")] = ""


class ApprovalNamed(Input, frozen=True, kw_only=True):
    run_id: RunId
    approval_id: ApprovalId


class ApprovalApprove(Input, frozen=True, kw_only=True):
    """An approval of one call, with the arguments that were shown."""

    run_id: RunId
    approval_id: ApprovalId
    reason: Reason = ""
    arguments_sha256: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=PRINTABLE,
            description="Hash of the arguments as they were shown; another one is refused. Empty: not compared.",
        ),
    ] = ""
    surface: Surface = "http"


class ApprovalDeny(Input, frozen=True, kw_only=True):
    run_id: RunId
    approval_id: ApprovalId
    reason: Reason = ""
    surface: Surface = "http"


class ApproverGroupRow(Output, frozen=True, kw_only=True):
    """A group of people of which some must approve."""

    subjects: list[str]
    scopes: list[str]
    approvals: Annotated[int, Meta(description="How many different people must approve.")]
    within_s: Annotated[int, Meta(description="How long they are waited for.")]


class ApprovalVoteRow(Output, frozen=True, kw_only=True):
    """What a person said about a call."""

    by: str
    approved: bool
    reason: str
    surface: Annotated[str, Meta(description="Where it was said, such as http, page or mcp.")]
    at: Annotated[str, Meta(description="RFC 3339.")]


class Approval(Output, frozen=True, kw_only=True):
    """A call that needs, or needed, the approval of people."""

    approval_id: str
    run_id: str
    agent: str
    user_id: str
    status: str
    tool: str
    arguments: Annotated[str, Meta(description="Arguments that are executed once they are approved, JSON.")]
    arguments_sha256: str
    question: str
    rule: str
    source: Annotated[str, Meta(description="Source of the rule: file, tenant or agent.")]
    reason: str
    groups: Annotated[list[ApproverGroupRow], Meta(description="Who is asked, then who when their time is over.")]
    group: Annotated[int, Meta(description="Place of the group that is asked, from 0.")]
    votes: list[ApprovalVoteRow]
    may_approve: Annotated[bool, Meta(description="Whether the caller is one of those who are asked now.")]
    created_at: Annotated[str, Meta(description="RFC 3339.")]
    expires_at: Annotated[str, Meta(description="RFC 3339.")]
    ended_at: Annotated[str | None, Meta(description="RFC 3339; null while it waits.")]


class ApprovalPage(Output, frozen=True, kw_only=True):
    """Calls that need approval, newest first."""

    approvals: list[Approval]
    total: int
    next: str | None


class ApprovalVoted(Output, frozen=True, kw_only=True):
    """State of the approval after a person's decision."""

    approval_id: str
    status: Annotated[str, Meta(description="pending (more people are needed), resolved, declined or timed_out.")]
    approvals: Annotated[int, Meta(description="People who have approved so far.")]


class PolicyRead(Input, frozen=True, kw_only=True):
    version: Version = 0


class PolicySetInput(Input, frozen=True, kw_only=True):
    """Rules that take the place of those in force; an empty list: none."""

    rules: RuleList
    replaces: Annotated[
        int | None, Meta(description="Version that must be in force, so that no change of others is lost.")
    ] = None


class PolicyRollBack(Input, frozen=True, kw_only=True):
    version: Annotated[int, Meta(ge=1, le=2**53, description="Version whose rules are put in force again.")]


class PolicyVersion(Output, frozen=True, kw_only=True):
    """A version of the tenant's rules, in force for runs that start while it is the newest."""

    version: Annotated[int, Meta(description="0: no rules were ever set.")]
    sha256: str
    rules: list[dict[str, Any]]
    by: str
    at: Annotated[str | None, Meta(description="RFC 3339.")]
    restores: Annotated[int, Meta(description="Version whose rules these are; 0: they are new.")]


class PolicyVersionRow(Output, frozen=True, kw_only=True):
    """A version without its rules."""

    version: int
    sha256: str
    by: str
    at: Annotated[str, Meta(description="RFC 3339.")]
    restores: int


class PolicyVersions(Output, frozen=True, kw_only=True):
    """Versions, the newest first."""

    versions: list[PolicyVersionRow]


class PolicyTest(Input, frozen=True, kw_only=True):
    """A run that has happened, and rules to try on it."""

    run_id: RunId
    rules: Annotated[RuleList | None, Meta(description="Rules to try; those of the tenant in force if absent.")] = None


class TestedCall(Output, frozen=True, kw_only=True):
    """What rules would have said about a recorded call."""

    __test__ = False

    turn: int
    index: int
    tool: str
    outcome: Annotated[str, Meta(description="allow, deny or ask.")]
    rule: Annotated[str, Meta(description="Rule that decides; empty: none matches.")]
    reason: str
    is_undecided: Annotated[bool, Meta(description="A condition could not be decided, and counts against the call.")]
    recorded: Annotated[str, Meta(description="Outcome of the call as it was; empty: it has none.")]


class PolicyTested(Output, frozen=True, kw_only=True):
    """The calls of a run with what rules would have said, and how many of each outcome there are."""

    run_id: str
    calls: list[TestedCall]
    allowed: int
    denied: int
    asked: int
    is_complete: Annotated[bool, Meta(description="False: the run is longer than what is read at once.")]


_operation = partial(Operation, tag=TAG)
POLICY = _operation(
    name="approvals.policy",
    summary="Get the tenant's rules for tool calls, in force or of a version.",
    input=PolicyRead,
    output=PolicyVersion,
    access=requires(RUNS_READ),
    effect=Effect.READ,
    http=(Http(route="GET /v1/_approvals/policy", id="get_approval_rules", refusal_statuses=(404,)),),
)
SET_POLICY = _operation(
    name="approvals.set_policy",
    summary="Put rules for tool calls in force; runs that have started keep theirs.",
    input=PolicySetInput,
    output=PolicyVersion,
    access=requires(TENANT),
    effect=Effect.WRITE,
    http=(
        Http(
            route="PUT /v1/_approvals/policy",
            id="set_approval_rules",
            body_bytes_max=BODY_BYTES_MAX,
            example={
                "rules": [
                    {
                        "name": "large-payments",
                        "tools": ["pay"],
                        "when": [{"argument": "$.amount", "greater_than": 100}],
                        "then": "ask",
                        "ask": {"subjects": ["ann", "bob"], "approvals": 2, "within_s": 3600},
                    }
                ]
            },
        ),
    ),
)
VERSIONS = _operation(
    name="approvals.versions",
    summary="List the versions of the tenant's rules, the newest first.",
    input=NoInput,
    output=PolicyVersions,
    access=requires(RUNS_READ),
    effect=Effect.READ,
    http=(Http(route="GET /v1/_approvals/policy/versions", id="list_approval_rules_versions"),),
)
ROLL_BACK = _operation(
    name="approvals.roll_back",
    summary="Put the rules of an earlier version in force again, as a new version.",
    input=PolicyRollBack,
    output=PolicyVersion,
    access=requires(TENANT),
    effect=Effect.WRITE,
    http=(Http(route="POST /v1/_approvals/policy/roll_back", id="restore_approval_rules", example={"version": 2}),),
)
TEST = _operation(
    name="approvals.test",
    summary="Show what rules would have said about the calls of a recorded run.",
    input=PolicyTest,
    output=PolicyTested,
    access=requires(RUNS_READ),
    effect=Effect.READ,
    http=(
        Http(
            route="POST /v1/_approvals/policy/test/{run_id}",
            id="test_approval_rules",
            body_optional=True,
            body_bytes_max=BODY_BYTES_MAX,
            example={"rules": [{"name": "no-shell", "tools": ["Bash"], "then": "deny"}]},
        ),
    ),
)
LIST = _operation(
    name="approvals.ls",
    summary="List the calls that need approval, newest first; pending ones by default.",
    input=ApprovalsList,
    output=ApprovalPage,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
    http=(Http(route="GET /v1/_approvals", id="list_approvals", takes_tenant=False),),
    mcp=(McpTool(tool="approvals"),),
)
SHOW = _operation(
    name="approvals.show",
    summary="Show a call that needs approval, with the arguments that would be executed.",
    input=ApprovalNamed,
    output=Approval,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
    http=(Http(route="GET /v1/_approvals/{run_id}/{approval_id}", id="show_approval", takes_tenant=False),),
)
APPROVE = _operation(
    name="approvals.approve",
    summary="Approve a call; it is made once enough different people have.",
    input=ApprovalApprove,
    output=ApprovalVoted,
    access=own_data(RUNS_READ),
    effect=Effect.WRITE,
    http=(
        Http(
            route="POST /v1/_approvals/{run_id}/{approval_id}/approve",
            id="approve_call",
            takes_tenant=False,
            body_optional=True,
            example={"reason": "known supplier"},
        ),
    ),
    mcp=(McpTool(tool="approve_call", fixed={"surface": "mcp"}),),
)
DENY = _operation(
    name="approvals.deny",
    summary="Deny a call; the agent gets that as its result.",
    input=ApprovalDeny,
    output=ApprovalVoted,
    access=own_data(RUNS_READ),
    effect=Effect.WRITE,
    http=(
        Http(
            route="POST /v1/_approvals/{run_id}/{approval_id}/deny",
            id="deny_call",
            takes_tenant=False,
            body_optional=True,
            example={"reason": "wrong supplier"},
        ),
    ),
    mcp=(McpTool(tool="deny_call", fixed={"surface": "mcp"}),),
)
OPERATIONS = (POLICY, SET_POLICY, VERSIONS, ROLL_BACK, TEST, LIST, SHOW, APPROVE, DENY)

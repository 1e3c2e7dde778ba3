"""A policy: rules in the order in which they are tried. The first one that matches a call decides about it.

It is plain data, JSON in the log and YAML in a file. There are no expressions: nothing to divide, to recurse or to
explode. Its version is the hash of its canonical text.

A path into arguments is a `$` with at most DEPTH_MAX steps: `.name`, `[number]`, or `[*]` for every entry of a list.
Nothing else of JSONPath is read, so that a look-up costs one step for each part.

It is here because both the configuration and the core read policies. Before: text of a file, a route or an agent.
After: services/core/approvals/evaluation.py.
"""

import hashlib
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

RULES_MAX = 1_000
POLICY_BYTES_MAX = 262_144
"""Bytes of a policy's canonical text: a thousand rules of 250 bytes. Every process keeps that of each tenant."""
METERS_MAX = 100
"""Most different counts and sums of a policy: a run carries a total for each."""
NUMBER_MAX = 10**15
"""Largest number that is compared with, of either sign: whole numbers up to it are exact in every JSON."""
SUM_MAX = 9_000_000_000
"""Largest bound of a sum or a cost: a sum stops soon after it, and an amount that cannot be read counts as more."""
TREE_RULES_MAX = 50
"""Most rules of a policy that count over a tree: what each says about a call waits until the totals are known."""
STARS_MAX = 4
"""Most stars of a pattern: each one multiplies the work of a match."""
ALLOW, DENY, ASK = "allow", "deny", "ask"
RUN, TREE = "run", "tree"
"""Reaches of a rule."""
DEPTH_MAX = 8
EVERY = "*"
Path = tuple[str | int, ...]
"""Names, numbers and EVERY."""
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]{0,79})|\[(\d{1,4}|\*)\]")

Pattern = Annotated[str, Meta(min_length=1, max_length=200, description="A name; * stands for any text.")]
Patterns = Annotated[tuple[Pattern, ...], Meta(min_length=1, max_length=50)]
JsonPath = Annotated[str, Meta(min_length=3, max_length=400)]
Number = float | int
Scalar = str | int | float | bool | None


class Condition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one condition compares: exactly one of argument, count, sum and spent. All its comparisons must hold."""

    argument: JsonPath | None = None
    """Value of the call's arguments."""
    count: Patterns | None = None
    """Calls of these tools that were allowed before: to the run, or with the reach tree to all runs of its tree."""
    sum: JsonPath | None = None
    """Sum of that argument over this call and the earlier ones of the tools in `of`. What is below 0 counts as 0."""
    of: Patterns | None = None
    spent: bool = False
    """What the models have cost, in the currency of the prices."""
    exists: bool | None = None
    equals: Scalar | msgspec.UnsetType = msgspec.UNSET
    not_equals: Scalar | msgspec.UnsetType = msgspec.UNSET
    one_of: Annotated[tuple[Scalar, ...], Meta(min_length=1, max_length=200)] | None = None
    matches: Pattern | None = None
    greater_than: Number | None = None
    at_least: Number | None = None
    less_than: Number | None = None
    at_most: Number | None = None


class Approvers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A group of people: those who may approve, how many of them must, and how long they are waited for."""

    subjects: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...], Meta(max_length=100)] = ()
    scopes: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=80)], ...], Meta(max_length=20)] = ()
    approvals: Annotated[int, Meta(ge=1, le=20)] = 1
    """Different people who must approve. One who denies is enough to deny."""
    within_s: Annotated[int, Meta(ge=1, le=2_592_000)] = 86_400


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An address that gets a signed webhook when a call waits (Standard Webhooks)."""

    url: Annotated[str, Meta(pattern=r"^https?://[^\s]+$", max_length=2_000)]
    secret_env: Annotated[str, Meta(pattern=r"^[A-Z_][A-Z0-9_]{0,127}$")] | None = None
    """Name of the environment variable with the secret that signs it; absent: it is not signed."""


class Ask(Approvers, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The first group of approvers, and those that are asked when the time of a group is over."""

    not_requester: bool = False
    """Whether the subject that started the run, and its user, may not approve."""
    escalate: Annotated[tuple[Approvers, ...], Meta(max_length=3)] = ()
    """Empty, or after the last one: the call is denied."""
    notify: Notify | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule. A list that is left out restricts nothing; all conditions must hold."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]
    then: Literal["allow", "deny", "ask"]
    reach: Literal["run", "tree"] = "run"
    """Runs whose calls and cost its conditions count: this one, or its root and all runs below that have the policy."""
    tools: Patterns = ("*",)
    agents: Patterns = ("*",)
    """Names of the run's agent, or of those that it works for."""
    tenants: Patterns = ("*",)
    users: Patterns = ("*",)
    when: Annotated[tuple[Condition, ...], Meta(max_length=20)] = ()
    reason: Annotated[str, Meta(max_length=500)] = ""
    """Reason that the model gets when it is denied, and that approvers see."""
    ask: Ask | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rules: Annotated[tuple[Rule, ...], Meta(max_length=RULES_MAX)] = ()


class PolicyError(ValueError):
    """A policy that cannot be used; the message names the rule and the field."""


def parse_policy(value: Any, *, scopes: Collection[str] | None = None) -> Policy:
    """Return the policy of plain data (mappings, lists, texts, numbers). Raises PolicyError.

    `scopes`: the catalogue of scopes of access; None: they are not compared with it.
    """
    try:
        policy = msgspec.convert(value, Policy, strict=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise PolicyError(_sentence(str(error))) from error
    problem = next(_problems(policy, scopes), "")
    if problem:
        raise PolicyError(problem)
    if len(policy_text(policy)) > POLICY_BYTES_MAX:
        raise PolicyError(f"the policy has more than {POLICY_BYTES_MAX} bytes: join rules, or shorten their lists")
    return policy


def decode_policy(text: str, *, scopes: Collection[str] | None = None) -> Policy:
    """Return the policy of a JSON text. Raises PolicyError."""
    if len(text) > 4 * POLICY_BYTES_MAX:
        raise PolicyError(f"the policy has {len(text)} bytes: expected at most {POLICY_BYTES_MAX}")
    try:
        return parse_policy(msgspec.json.decode(text), scopes=scopes)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise PolicyError(f"the policy is not valid JSON: {error}") from error


def policy_text(policy: Policy) -> str:
    """Return the canonical JSON text: sorted, without what is the default."""
    return msgspec.json.encode(policy, order="sorted").decode()


def policy_sha256(text: str) -> str:
    """Return the version of a policy: the hex SHA-256 of its canonical text."""
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=10_000)
def parse_path(text: str) -> Path:
    """Return the steps of a path. Raises ValueError."""
    steps: list[str | int] = []
    position = 1
    while text[:1] == "$" and position < len(text):
        part = _STEP.match(text, position)
        if part is None:
            break
        name, number = part.groups()
        steps.append(name if name is not None else EVERY if number == EVERY else int(number))
        position = part.end()
    if not steps or position < len(text) or len(steps) > DEPTH_MAX:
        raise ValueError(f"{text[:80]!r} is no path: expected 1 to {DEPTH_MAX} steps such as $.lines[*].amount")
    return tuple(steps)


def meter_of(condition: Condition, reach: str) -> str:
    """Return the key of the total that a condition on earlier calls reads; empty for other conditions."""
    kind = () if reach == RUN else (reach,)
    if condition.count is not None:
        return _digest(*kind, "count", *condition.count)
    if condition.sum is not None:
        return _digest(*kind, "sum", condition.sum, *(condition.of or ()))
    return ""


def reads_history(condition: Condition) -> bool:
    """Whether a condition is about earlier calls or cost."""
    return condition.argument is None


def reads_tree_cost(policy: Policy) -> bool:
    """Whether a rule reads what a whole tree has cost."""
    return any(rule.reach == TREE and condition.spent for rule in policy.rules for condition in rule.when)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _problems(policy: Policy, scopes: Collection[str] | None) -> Iterator[str]:
    names: set[str] = set()
    meters: set[str] = set()
    for position, rule in enumerate(policy.rules):
        place = f"rules[{position}] ({rule.name})"
        if rule.name in names:
            yield f"{place}: an earlier rule has this name already"
        names.add(rule.name)
        yield from _rule_problems(place, rule, scopes)
        meters.update(meter for condition in rule.when if (meter := meter_of(condition, rule.reach)))
    if len(meters) > METERS_MAX:
        yield f"there are {len(meters)} different counts and sums: expected at most {METERS_MAX}"
    of_trees = sum(rule.reach == TREE for rule in policy.rules)
    if of_trees > TREE_RULES_MAX:
        yield f"{of_trees} rules have the reach tree: expected at most {TREE_RULES_MAX}"


def _rule_problems(place: str, rule: Rule, scopes: Collection[str] | None) -> Iterator[str]:
    for field in ("tools", "agents", "tenants", "users"):
        yield from (f"{place}.{field}: {one}" for one in _pattern_problems(getattr(rule, field)))
    for position, condition in enumerate(rule.when):
        yield from (f"{place}.when[{position}]: {one}" for one in _condition_problems(condition))
    if rule.reach == TREE and not any(map(reads_history, rule.when)):
        yield f"{place}: the reach tree is for conditions on count, sum or spent, and there are none: leave it out"
    if (rule.ask is None) == (rule.then == ASK):
        yield f"{place}: expected ask with then: ask, and only with it"
    if rule.ask is not None:
        for number, group in enumerate((rule.ask, *rule.ask.escalate)):
            yield from (f"{place}.ask: {one}" for one in _group_problems(number, group, scopes))


def _group_problems(number: int, group: Approvers, scopes: Collection[str] | None) -> Iterator[str]:
    label = "" if number == 0 else f"escalate[{number - 1}]: "
    if not group.subjects and not group.scopes:
        yield f"{label}expected subjects or scopes, because no one could approve otherwise"
    unknown = [] if scopes is None else sorted(set(group.scopes).difference(scopes))
    if scopes is not None and unknown:
        yield f"{label}{unknown[0]!r} is no scope of access: expected some of {', '.join(sorted(scopes))}"
    if not group.scopes and len(set(group.subjects)) < group.approvals:
        yield f"{label}{group.approvals} approvals are needed, and only {len(set(group.subjects))} subjects may approve"


def _pattern_problems(patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        if pattern.count("*") > STARS_MAX:
            yield f"{pattern[:60]!r} has more than {STARS_MAX} stars"
        if not pattern.isprintable():
            yield f"{pattern[:60]!r} has characters that cannot be printed"


NUMERIC = ("greater_than", "at_least", "less_than", "at_most")


def _condition_problems(condition: Condition) -> Iterator[str]:
    kinds = [condition.argument is not None, condition.count is not None, condition.sum is not None, condition.spent]
    if sum(kinds) != 1:
        yield "expected exactly one of argument, count, sum and spent"
        return
    if (condition.sum is None) != (condition.of is None):
        yield "expected of, the tools whose calls are added up, with sum and only with it"
    for path in filter(None, (condition.argument, condition.sum)):
        try:
            parse_path(path)
        except ValueError as error:
            yield str(error)
    yield from _pattern_problems((*(condition.count or ()), *(condition.of or ())))
    numeric = [name for name in NUMERIC if getattr(condition, name) is not None]
    others = [name for name in ("exists", "one_of", "matches") if getattr(condition, name) is not None]
    others += [name for name in ("equals", "not_equals") if getattr(condition, name) is not msgspec.UNSET]
    if not numeric and not others:
        yield f"expected a comparison, such as {NUMERIC[0]}"
    if others and condition.argument is None:
        yield f"{others[0]} compares arguments only: expected one of {', '.join(NUMERIC)}"
    for name in (*NUMERIC, "equals", "not_equals"):
        yield from _number_problems(name, getattr(condition, name))
    for name in NUMERIC if condition.sum is not None or condition.spent else ():
        if (getattr(condition, name) or 0) > SUM_MAX:
            yield f"{name} is {getattr(condition, name)}: sums and costs are counted up to {SUM_MAX}; use other units"
    for choice in condition.one_of or ():
        yield from _number_problems("one_of", choice)
    if condition.exists is False and (numeric or len(others) > 1):
        yield "exists: false holds for absent values only, which no other comparison does"
    yield from _pattern_problems((condition.matches,) if condition.matches else ())


def _number_problems(name: str, value: Any) -> Iterator[str]:
    """NaN and infinities have no JSON, and compare in surprising ways; larger numbers have no exact amounts."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and not abs(value) <= NUMBER_MAX:
        yield f"{name} is {str(value)[:40]}: expected a number of at most {NUMBER_MAX}"


def _sentence(message: str) -> str:
    """Return a message of the parser with our path: `rules[0].then` for `$.rules[0].then`."""
    text, mark, path = message.partition(" - at `$")
    return f"{path.rstrip('`').lstrip('.')}: {text}" if mark and path.rstrip("`") else text

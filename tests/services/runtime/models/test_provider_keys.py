"""Which key a model call is made with, who pays, and what becomes of a call that has none."""

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import Reply
from loomlog.schemas.generated.run_events import ModelReplied
from loomlog.schemas.generated.values import ParentCall, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.runtime.content.run_credentials import Credentials
from loomlog.services.runtime.models import provider_keys
from loomlog.services.runtime.models.provider_keys import NO_KEY, OPERATOR_KEY, KeySource, ProviderKey
from tests.services.core.run.given import RUN, begun
from tests.services.families.identity.stored import Stored
from tests.services.runtime.content.test_run_credentials import Store
from tests.services.runtime.models.test_model_calls import Work

NAME = "ACME_API_KEY"
THEIRS = "sk-of-the-run"
REPLY = Reply(text="done", stop_reason="end_turn", usage=Usage(input_tokens=1))
OF_RUN = KeySource(source="run", scope=RUN, values={NAME: THEIRS})
CHILD_OF = ParentCall(run_id="r_middle", agent_id="a", root_run_id="r_root", turn=1, index=0, number=0, depth=2)


def resolved(
    *sources: KeySource, name: str = NAME, operator_has_one: bool = True, may_use_operators: bool = True
) -> ProviderKey:
    return provider_keys.resolve_key(
        "acme", name, sources, operator_has_key=operator_has_one, may_use_operator_key=may_use_operators
    )


# --- the rule --------------------------------------------------------------------------------------------------------


def test_the_first_source_that_has_the_name_wins() -> None:
    tenants = KeySource(source="tenant", scope="t", values={NAME: "sk-of-the-tenant"})
    assert resolved(OF_RUN, tenants) == ProviderKey(source="run", scope=RUN, value=THEIRS)
    assert resolved(KeySource(source="run", scope=RUN, values={"OTHER": "x", NAME: ""}), tenants).source == "tenant"


def test_the_operators_key_is_the_last_and_its_value_stays_with_the_driver() -> None:
    assert resolved() == OPERATOR_KEY == ProviderKey(source="operator", scope="", value="")


def test_a_provider_that_needs_no_key_is_paid_by_nobody() -> None:
    assert resolved(OF_RUN, name="", may_use_operators=False) == NO_KEY == ProviderKey(source="", scope="", value="")


def test_who_may_not_use_the_operators_key_is_told_which_name_to_bring() -> None:
    with pytest.raises(Permanent, match=f"acme: operator key forbidden: .* the credential {NAME}") as caught:
        resolved(may_use_operators=False)
    assert caught.value.kind == "operator_key_restricted"
    assert resolved(OF_RUN, may_use_operators=False).source == "run"


def test_where_nobody_has_a_key_the_call_is_refused() -> None:
    with pytest.raises(Permanent, match=f"the operator has no key .* the credential {NAME}") as caught:
        resolved(operator_has_one=False)
    assert caught.value.kind == "refused"


def test_only_the_operators_key_and_none_are_everybodys() -> None:
    assert (NO_KEY.is_shared, OPERATOR_KEY.is_shared, resolved(OF_RUN).is_shared) == (True, True, False)


def test_no_repr_shows_a_key() -> None:
    assert THEIRS not in repr(OF_RUN) + repr(resolved(OF_RUN))


# --- at the call -----------------------------------------------------------------------------------------------------


def asking(*names: str, parent: ParentCall | None = None) -> AwaitingModel:
    state = begun().state
    assert isinstance(state, AwaitingModel)
    return replace(
        state, facts=replace(state.facts, parent=parent, options=replace(state.facts.options, credentials=names))
    )


def working(*items: Reply | Exception, store: Store | None = None, **provider: object) -> Work:
    store = store or Store({NAME: THEIRS})
    return Work(*items, credentials=Credentials(store), **{"api_key_env": NAME, **provider})


async def test_a_call_is_made_with_the_key_that_came_with_the_run_and_says_so() -> None:
    work = working(REPLY)
    order = await work.answered(asking(NAME))
    assert [request.api_key for request in work.model.requests] == [THEIRS]
    assert (order.credential_source, order.credential_scope, work.heard.paid) == ("run", RUN, ["run"])
    assert THEIRS not in repr(order) + repr(work.model.requests)


async def test_a_child_uses_the_key_its_tree_began_with() -> None:
    store = Store({NAME: THEIRS})
    order = await working(REPLY, store=store).answered(asking(NAME, parent=CHILD_OF))
    assert (order.credential_source, order.credential_scope) == ("run", "r_root")
    assert store.asked == [("", "r_root")]


async def test_a_run_without_that_credential_uses_the_operators_and_asks_no_store() -> None:
    store = Store({NAME: THEIRS})
    work = working(REPLY, store=store)
    order = await work.answered(asking("default"))
    assert (order.credential_source, order.credential_scope, store.asked) == ("operator", "", [])
    assert [request.api_key for request in work.model.requests] == [""]


async def test_a_provider_that_needs_no_key_gets_none() -> None:
    work = working(REPLY, api_key_env="")
    order = await work.answered(asking(NAME))
    assert (order.credential_source, order.credential_scope) == ("", "")
    assert [request.api_key for request in work.model.requests] == [""]


async def test_without_any_key_the_provider_is_not_called_and_its_model_is_not_marked() -> None:
    work = working(REPLY, has_key=False)
    order = await work.erred(asking())
    assert (order.kind, order.transient, work.model.requests, work.heard.told) == ("refused", False, [], [])


async def test_a_run_that_may_not_use_the_operators_key_never_falls_through_to_it() -> None:
    work = working(REPLY)
    state = asking("default")
    state = replace(
        state, facts=replace(state.facts, options=replace(state.facts.options, operator_key_restricted=True))
    )
    order = await work.erred(state)
    assert (order.kind, order.transient) == ("operator_key_restricted", False)
    assert NAME in order.message
    assert (work.model.requests, work.heard.told) == ([], [])
    state = replace(state, facts=replace(state.facts, options=replace(state.facts.options, credentials=(NAME,))))
    assert (await working(REPLY).answered(state)).credential_source == "run"


@pytest.mark.parametrize("restricted", [False, True])
async def test_a_key_that_is_gone_from_the_store_is_not_replaced_by_the_operators(restricted: bool) -> None:
    work = working(REPLY, store=Store({}))
    state = asking(NAME)
    order = await work.erred(
        replace(
            state, facts=replace(state.facts, options=replace(state.facts.options, operator_key_restricted=restricted))
        )
    )
    assert (order.kind, order.transient, work.model.requests, work.heard.told) == ("refused", False, [], [])
    assert f"the credential {NAME} that came with the run has expired" in order.message


async def test_a_store_that_is_away_is_no_fault_of_the_model() -> None:
    store = Store({NAME: THEIRS})
    store.failures = [Transient("the store is away", kind="unavailable")]
    work = working(REPLY, store=store)
    order = await work.erred(asking(NAME))
    assert (order.kind, order.transient, work.model.requests, work.heard.told) == ("unavailable", True, [], [])


async def test_a_failure_that_shows_the_key_is_kept_without_it() -> None:
    work = working(Permanent(f"acme 401: bad key {THEIRS}", kind="unauthorised", status=401))
    order = await work.erred(asking(NAME))
    assert order.message == order.cause == "acme 401: bad key [redacted:credential]"


# --- who paid, in the log --------------------------------------------------------------------------------------------


async def test_the_answer_in_the_log_says_who_paid_and_nothing_in_it_shows_the_key() -> None:
    state = asking(NAME)
    order = await working(REPLY).answered(state)
    replied, *_ = decide(state, order)
    assert isinstance(replied, ModelReplied)
    assert (replied.credential_source, replied.credential_scope) == ("run", RUN)
    assert THEIRS not in repr(replied)


# --- stored credentials ----------------------------------------------------------------------------------------------


async def of_stored(scope: str, scope_id: str = "", *, value: str = "sk-stored") -> Credentials:
    """Return the credentials of runs, one that came with a run and one that is stored."""
    stored = Stored(tenant="")
    await stored.set(NAME, value, scope=scope, scope_id=scope_id)
    credentials = Credentials(Store({NAME: THEIRS}))
    credentials.stored = stored.reader()
    return credentials


@pytest.mark.parametrize(("scope", "scope_id"), [("tenant", ""), ("agent", asking().facts.definition.name)])
async def test_a_stored_key_goes_before_the_operators_and_pays(scope: str, scope_id: str) -> None:
    credentials = await of_stored(scope, scope_id)
    work = Work(REPLY, credentials=credentials, api_key_env=NAME)
    order = await work.answered(asking())
    assert [request.api_key for request in work.model.requests] == ["sk-stored"]
    assert (order.credential_source, order.credential_scope) == (scope, scope_id)
    assert "sk-stored" not in repr(order) + repr(work.model.requests)
    assert "sk-stored" in (await credentials.load_values(asking().facts, "")).values()


async def test_the_key_that_came_with_the_run_goes_before_a_stored_one() -> None:
    credentials = await of_stored("tenant")
    work = Work(REPLY, credentials=credentials, api_key_env=NAME)
    assert (await work.answered(asking(NAME))).credential_source == "run"


async def test_the_key_of_another_agent_is_not_used() -> None:
    credentials = await of_stored("agent", "another")
    work = Work(REPLY, credentials=credentials, api_key_env=NAME)
    assert (await work.answered(asking())).credential_source == "operator"


async def test_a_stored_key_whose_value_is_gone_is_not_replaced_by_the_operators() -> None:
    credentials = await of_stored("tenant", value="")
    work = Work(REPLY, credentials=credentials, api_key_env=NAME)
    assert (await work.erred(asking())).kind == "refused"
    assert work.model.requests == []

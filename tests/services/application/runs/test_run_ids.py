from loomlog.schemas.ids import ID_PATTERN, partition_key
from loomlog.services.application.runs.run_ids import RunNames, continuation_names, new_run_names

FRESH = "01kfresh00000000000000000a"
OTHER = "01kfresh00000000000000000b"


def named(
    *, fresh: str = FRESH, agent_id: str = "", key: str = "", tenant: str = "acme", subject: str = "ann"
) -> RunNames:
    return new_run_names(fresh_token=fresh, tenant=tenant, subject=subject, agent_id=agent_id, idempotency_key=key)


def continued(*, fresh: str = FRESH, key: str = "", session_id: str = "s_tokenoftheseason") -> RunNames:
    return continuation_names(
        fresh_token=fresh, session_id=session_id, tenant="acme", subject="ann", agent_id="", idempotency_key=key
    )


def test_a_plain_run_has_the_fresh_token_in_all_its_ids() -> None:
    assert named() == RunNames(run_id=f"r_{FRESH}", session_id=f"s_{FRESH}", agent_id=f"a_{FRESH}", key=FRESH)


def test_the_key_is_that_of_every_id_of_ours() -> None:
    for names in (named(), named(key="k"), named(agent_id="mine"), continued(), continued(key="k")):
        assert names.key == partition_key(names.run_id) == partition_key(names.session_id)
        assert all(ID_PATTERN.match(one) for one in (names.run_id, names.session_id, names.agent_id))


def test_equal_handles_of_a_tenant_meet_in_one_partition_under_different_runs() -> None:
    one, two = named(agent_id="mine"), named(agent_id="mine", fresh=OTHER)
    assert one.agent_id == two.agent_id == "mine"
    assert one.key == two.key
    assert one.run_id != two.run_id
    assert one.session_id != two.session_id


def test_equal_handles_of_two_tenants_have_nothing_to_do_with_each_other() -> None:
    assert named(agent_id="mine").key != named(agent_id="mine", tenant="globex").key


def test_the_same_key_is_the_same_run() -> None:
    assert named(key="k") == named(key="k", fresh=OTHER)


def test_a_key_belongs_to_one_subject_of_one_tenant() -> None:
    runs = {named(key="k").run_id, named(key="k", subject="bob").run_id, named(key="k", tenant="globex").run_id}
    assert len(runs) == 3


def test_a_key_and_its_subject_cannot_be_shifted_into_each_other() -> None:
    assert named(key="bc", subject="a").run_id != named(key="c", subject="ab").run_id


def test_a_continuation_stays_in_the_partition_of_its_session() -> None:
    names = continued()
    assert names.session_id == "s_tokenoftheseason"
    assert names.key == "tokenoftheseason"
    assert names.run_id != continued(fresh=OTHER).run_id


def test_a_continuation_with_a_key_is_the_same_run_in_the_same_session_only() -> None:
    assert continued(key="k") == continued(key="k", fresh=OTHER)
    assert continued(key="k").run_id != continued(key="k", session_id="s_another").run_id

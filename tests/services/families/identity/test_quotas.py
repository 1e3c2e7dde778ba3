"""Quotas: what counts against which bound, for how long, and who is refused."""

from typing import Any

import pytest

from loomlog.projections.run_queries import ActiveRuns
from loomlog.schemas.generated.values import TenantQuota
from loomlog.services.core.access.decide import Caller, RunIdentity
from loomlog.services.core.refusals import Refused
from loomlog.services.families.identity.directory import NO_QUOTA
from loomlog.services.families.identity.quotas import LAG_S, WINDOW_S, Quotas

ADA = Caller(name="ci", tenant="acme", subject="ada", scopes=frozenset(), token_id="tok_1")
BOB = Caller(name="bob", tenant="acme", subject="bob", scopes=frozenset())
OTHER = Caller(name="ada", tenant="globex", subject="ada", scopes=frozenset())
AS_ADA = RunIdentity(tenant="acme", subject="ada", user_id="ada")


class Bounds:
    """The quotas of one tenant, where a Quotas looks for them."""

    def __init__(self, **quotas: TenantQuota) -> None:
        self._quotas = {name.partition("_")[::2]: quota for name, quota in quotas.items()}

    def quotas(self, tenant: str) -> Any:
        return self._quotas if tenant == "acme" else {}

    def quota(self, tenant: str, scope: str, scope_id: str = "") -> TenantQuota:
        return self._quotas.get((scope, scope_id), NO_QUOTA) if tenant == "acme" else NO_QUOTA


class Here:
    """Quotas with a clock and runs that a test sets."""

    def __init__(self, **quotas: TenantQuota) -> None:
        self.now_s = 1_000.0
        self.rows: list[ActiveRuns] = []
        directory: Any = Bounds(**quotas)
        self.quotas = Quotas(directory, self.active_runs, now_s=lambda: self.now_s)

    async def active_runs(self, tenant: str) -> list[ActiveRuns]:
        return self.rows

    async def refusal(self) -> Refused:
        with pytest.raises(Refused) as caught:
            await self.quotas.admit_run(ADA, AS_ADA, "helper")
        assert caught.value.code == "tenant_quota_exhausted"
        return caught.value


def calls_until_refused(here: Here, caller: Caller) -> int:
    for number in range(100):
        try:
            here.quotas.admit_call(caller)
        except Refused as refused:
            return number if (refused.code, bool(refused.retry_after_s)) == ("tenant_quota_exhausted", True) else -1
    return 100


def test_calls_of_a_tenant_count_together_and_others_are_free() -> None:
    here = Here(tenant=TenantQuota(calls_per_minute=3))
    here.quotas.admit_call(BOB)
    assert calls_until_refused(here, ADA) == 2
    assert calls_until_refused(here, BOB) == 0
    assert calls_until_refused(here, OTHER) == 100


def test_a_user_and_a_token_have_bounds_of_their_own() -> None:
    here = Here(user_ada=TenantQuota(calls_per_minute=2))
    assert (calls_until_refused(here, ADA), calls_until_refused(here, BOB)) == (2, 100)
    here = Here(key_tok_1=TenantQuota(calls_per_minute=1))
    assert (calls_until_refused(here, ADA), calls_until_refused(here, BOB)) == (1, 100)


def test_a_minute_slides() -> None:
    here = Here(tenant=TenantQuota(calls_per_minute=4))
    assert calls_until_refused(here, ADA) == 4
    here.now_s += WINDOW_S
    assert calls_until_refused(here, ADA) == 0, "all of them are within the last minute"
    here.now_s += WINDOW_S / 2
    assert calls_until_refused(here, ADA) == 2
    here.now_s += 2 * WINDOW_S
    assert calls_until_refused(here, ADA) == 4


def test_zero_is_none_at_all() -> None:
    assert calls_until_refused(Here(tenant=TenantQuota(calls_per_minute=0)), ADA) == 0


def test_a_refused_call_does_not_count_against_the_wider_bound() -> None:
    here = Here(tenant=TenantQuota(calls_per_minute=3), user_ada=TenantQuota(calls_per_minute=1))
    assert calls_until_refused(here, ADA) == 1
    assert calls_until_refused(here, BOB) == 2


def test_streams_count_until_they_are_released() -> None:
    here = Here(tenant=TenantQuota(open_streams=1))
    release = here.quotas.take_stream(ADA)
    with pytest.raises(Refused) as caught:
        here.quotas.take_stream(BOB)
    assert caught.value.details == {"scope": "tenant", "what": "open_streams", "cap": 1}
    release()
    here.quotas.take_stream(BOB)


async def test_runs_at_once_are_those_of_the_read_models_and_those_that_just_started() -> None:
    here = Here(tenant=TenantQuota(runs_at_once=2))
    here.rows = [ActiveRuns("bob", "mock", 1, 1)]
    await here.quotas.admit_run(ADA, AS_ADA, "helper")
    assert (await here.refusal()).details["what"] == "runs_at_once"
    here.now_s += LAG_S
    await here.quotas.admit_run(ADA, AS_ADA, "helper")


async def test_runs_at_once_of_a_user_are_those_of_that_user() -> None:
    here = Here(user_ada=TenantQuota(runs_at_once=1))
    here.rows = [ActiveRuns("bob", "mock", 9, 9)]
    await here.quotas.admit_run(ADA, AS_ADA, "helper")
    here.rows = [ActiveRuns("ada", "mock", 1, 0)]
    here.now_s += LAG_S
    await here.refusal()


async def test_runs_of_a_minute_have_a_bound_of_their_own() -> None:
    here = Here(tenant=TenantQuota(runs_per_minute=1))
    await here.quotas.admit_run(ADA, AS_ADA, "helper")
    assert (await here.refusal()).details["what"] == "runs_per_minute"
    here.now_s += 3 * WINDOW_S
    await here.quotas.admit_run(ADA, AS_ADA, "helper")

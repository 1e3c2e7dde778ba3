"""Stored credentials as they are used: found at once, and a clear error where one cannot be had."""

import pytest

from loomlog.connectors.errors import Permanent
from loomlog.services.families.identity.credentials import CredentialMissing
from loomlog.services.families.ports.credentials import CredentialUser
from tests.services.families.identity.stored import Stored

ADA = CredentialUser(tenant="acme", user="ada", agent="helper")


async def test_what_another_process_has_just_stored_or_replaced_is_found() -> None:
    stored = Stored()
    reader = stored.reader()
    await stored.set("git", "first", elsewhere=True)
    assert (await reader.resolve("$cred:git", ADA)).value == "first"
    stored.reader()
    await stored.set("git", "second", elsewhere=True)
    assert (await stored.reader().resolve("$cred:git", ADA)).value == "second"


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("$cred:none", r"\$cred:none names no stored credential of the agent, the user or the tenant"),
        ("git", "'git' is no reference to a credential"),
        ("$cred:gone", r"\$cred:gone: the value of the stored credential is gone; store it again"),
    ],
)
async def test_what_cannot_be_had_is_named(reference: str, error: str) -> None:
    stored = Stored()
    await stored.set("git", "hunter2")
    key = await stored.set("gone", "hunter2")
    await stored.rows.delete(key, below=100)
    with pytest.raises(Permanent, match=error) as caught:
        await stored.reader().resolve(reference, ADA)
    assert "hunter2" not in str(caught.value)
    assert isinstance(caught.value, CredentialMissing) is (reference == "$cred:none")

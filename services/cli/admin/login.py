"""`loomlog login` and `loomlog logout`: sign-in with an identity provider of the installation, by a device code.

Before: services/cli/main.py. After: services/cli/http/stored_tokens.py, connectors/identity_providers/device_login.py.
"""

import asyncio
import os
import time
import webbrowser
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.identity_providers.device_login import (
    DeviceCode,
    Tokens,
    request_code,
    revoke_token,
    wait_for_tokens,
)
from loomlog.connectors.identity_providers.documents import DocumentClient, discover, endpoint_of
from loomlog.connectors.identity_providers.oauth import ProviderRefused
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import CliError, Unreachable, UsageError
from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.http.stored_tokens import StoredToken, find_token, store_token, tokens_path
from loomlog.services.cli.settings import current_settings
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console, error_console


def login(
    issuer: Annotated[str, typer.Option("--issuer", help="Provider to sign in with, where there are several.")] = "",
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the address.")] = False,
) -> None:
    """Sign in with an identity provider of the installation; the token is kept for later commands."""
    settings = current_settings()
    run(_login(settings.api_url, issuer, should_open=not no_open))


def logout() -> None:
    """Forget the token of `loomlog login`, here and at the provider."""
    api_url = current_settings().api_url
    path = tokens_path(os.environ)
    token = find_token(path, api_url)
    if token is None:
        console().print(f"There is no sign-in to {api_url}.")
        return
    store_token(path, api_url, None)
    console().print(f"Signed out of {api_url}.")
    if token.refresh_token and token.revocation_url:
        try:
            revoke_token(token.revocation_url, token.client_id, token.refresh_token)
        except (ConnectorError, ProviderRefused) as error:
            text = f"The provider was not told ({error}): the sign-in there ends by itself."
            error_console().print(Text(text, style=WARNING))


async def _login(api_url: str, name: str, *, should_open: bool) -> None:
    async with ApiClient(api_url, "") as api:
        chosen = _choose(await api.get("/ui/login-config.json"), name, api_url)
    try:
        document = await _discover(chosen["issuer"])
        client_id, token_url = chosen["device_client_id"], endpoint_of(document, "token_endpoint")
        code_url, scope = endpoint_of(document, "device_authorization_endpoint"), " ".join(chosen["scopes"])
        code = await asyncio.to_thread(request_code, code_url, client_id, scope)
        _show(code, should_open=should_open)
        tokens = await asyncio.to_thread(wait_for_tokens, token_url, client_id, code)
    except ProviderRefused as refused:
        raise CliError(f"You are not signed in: {refused}.") from refused
    except ConnectorError as error:
        kind = Unreachable if isinstance(error, Transient) else CliError
        raise kind(f"The sign-in with {chosen['title']} does not work: {error}.") from error
    await _keep(api_url, tokens, document, client_id)


async def _keep(api_url: str, tokens: Tokens, document: Mapping[str, Any], client_id: str) -> None:
    """Keep the tokens if the API takes them."""
    async with ApiClient(api_url, tokens.bearer) as api:
        try:
            me = await api.get("/v1/_me")
        except UsageError as error:
            raise CliError(
                f"{api_url} does not take the token of the provider: your account may have no access, or the audience "
                "of the token is none of `audience`. The log of the api has the reason."
            ) from error
    token = StoredToken(
        bearer=tokens.bearer,
        refresh_token=tokens.refresh_token,
        expires_at_s=time.time() + tokens.lifetime_s,
        client_id=client_id,
        token_url=endpoint_of(document, "token_endpoint"),
        revocation_url=endpoint_of(document, "revocation_endpoint") if "revocation_endpoint" in document else "",
    )
    store_token(tokens_path(os.environ), api_url, token)
    person = (me["subject"], NAME), " of tenant ", (me["tenant_id"], NAME)
    console().print(Text.assemble("Signed in to ", api_url, " as ", *person, "."), soft_wrap=True)


def _choose(config: Mapping[str, Any], name: str, api_url: str) -> Mapping[str, Any]:
    """Return the provider to sign in with. Raises UsageError."""
    issuers: Sequence[Mapping[str, Any]] = config.get("issuers", [])
    usable = {one["name"]: one for one in issuers if one["device_client_id"]}
    if not usable:
        raise UsageError(
            f"{api_url} has no provider for `loomlog login` (issuers.<name>.device_client_id): set LOOMLOG_TOKEN."
        )
    if not name and len(usable) > 1:
        raise UsageError(f"There are several providers: name one with --issuer ({', '.join(usable)}).")
    if name and name not in usable:
        raise UsageError(f"--issuer: expected one of {', '.join(usable)}, not {name[:64]!r}.")
    return usable[name or next(iter(usable))]


async def _discover(issuer: str) -> Mapping[str, Any]:
    client = DocumentClient()
    try:
        return await discover(client.fetch, issuer)
    finally:
        await client.close()


def _show(code: DeviceCode, *, should_open: bool) -> None:
    out = console()
    out.print(Text.assemble("Open ", (code.address, NAME), " and enter ", (code.user_code, NAME), "."), soft_wrap=True)
    if should_open and webbrowser.open(code.address_with_code or code.address):
        out.print(Text("It is opened in your browser.", style=DIM))
    out.print(Text("Waiting for you ...", style=DIM))

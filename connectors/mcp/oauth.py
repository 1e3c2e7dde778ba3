"""OAuth 2.1 as servers of MCP ask for it: what is read from them, and what is sent. Pure.

    401 of the server              where its metadata is (RFC 9728), and which scopes it wants
    metadata of the resource       which authorization servers give tokens for it
    metadata of the latter         its addresses (RFC 8414, or OpenID Connect Discovery), and that it knows PKCE
    a client                       configured, a metadata document of ours, or registered (RFC 7591)
    a grant                        code with PKCE S256 (RFC 7636), or client credentials; for one resource (RFC 8707)

Everything read is a stranger's: an issuer that is another one, metadata of another resource, and addresses that are not
confidential are refused.

Before: oauth_client.py sends the requests. After: authlib, for the forms.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from authlib.common.security import generate_token
from authlib.common.urls import add_params_to_uri
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from loomlog.connectors.configuration.issuer_check import is_confidential_url
from loomlog.connectors.errors import Permanent
from loomlog.schemas.records import Value

RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
SERVER_METADATA = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
CLIENT_NAME = "loomlog"
METHODS = ("client_secret_basic", "client_secret_post", "none")
"""How a client proves who it is, the preferred first."""
CODE, REFRESH, CLIENT_CREDENTIALS = "authorization_code", "refresh_token", "client_credentials"
SCOPES_MAX = 50
"""Scopes that are asked for; metadata may list any number."""
URL_CHARACTERS_MAX = 2_000
TOKEN_CHARACTERS_MAX = 6_000
"""Characters of an access or a refresh token: both fit a stored credential."""
VERIFIER_CHARACTERS = 64
LIFETIME_S = 3_600
"""Seconds that a token is taken to live where the server does not say."""
EARLY_S = 60
"""Seconds before its end from which a token is renewed."""
_PARAMETER = re.compile(r'([A-Za-z_][A-Za-z0-9_-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_TOKEN = re.compile(r"[\x21-\x7e]+\Z")
Document = Mapping[str, Any]


class Challenge(Value, frozen=True, kw_only=True):
    """What a server says when it refuses a request for want of a token, or of scopes."""

    metadata_url: str = ""
    scope: str = ""
    error: str = ""


class ResourceMetadata(Value, frozen=True, kw_only=True):
    """What a protected resource says of itself (RFC 9728)."""

    resource: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] = ()


class AuthorizationServer(Value, frozen=True, kw_only=True):
    """What an authorization server says of itself (RFC 8414)."""

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str
    registration_endpoint: str = ""
    takes_client_documents: bool = False
    sends_issuer: bool = False
    """It names itself in the answer to the browser (RFC 9207)."""
    methods: tuple[str, ...] = ()


class OAuthClient(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What we are to an authorization server."""

    client_id: str
    client_secret: str = ""
    method: str = "none"

    def __repr__(self) -> str:
        return f"OAuthClient(client_id={self.client_id!r})"


class TokenGrant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens for one resource, and where they are renewed: what is stored, sealed."""

    resource: str
    issuer: str
    token_endpoint: str
    client: OAuthClient
    access_token: str
    refresh_token: str = ""
    scope: str = ""
    expires_at_s: float = 0.0

    def __repr__(self) -> str:
        return f"TokenGrant(resource={self.resource!r}, issuer={self.issuer!r})"

    def is_due(self, now_s: float) -> bool:
        """Return whether the access token has ended, or is about to."""
        return now_s >= self.expires_at_s - EARLY_S


class TokenRequest(Value, frozen=True, kw_only=True):
    """A request to a token endpoint."""

    url: str
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"TokenRequest(url={self.url!r})"


# --- what is read ----------------------------------------------------------------------------------------------------


def read_challenge(values: Sequence[str]) -> Challenge:
    """Return what the headers WWW-Authenticate of a refusal say about bearer tokens; nothing: empty."""
    for value in values:
        scheme, _, rest = value.strip().partition(" ")
        if scheme.lower() == "bearer":
            parameters = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest[:8_000])}
            return Challenge(
                metadata_url=parameters.get("resource_metadata", "")[:URL_CHARACTERS_MAX],
                scope=_printable(parameters.get("scope", "")),
                error=_printable(parameters.get("error", "")),
            )
    return Challenge()


def canonical_resource(url: str) -> str:
    """Return a server's address as it names the resource: without a query, a fragment, and a slash alone."""
    parts = urlsplit(url)
    path = "" if parts.path == "/" else parts.path
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), path, "", ""))


def resource_metadata_urls(server_url: str, challenge: Challenge) -> list[str]:
    """Return where the metadata of a server may be: where it said, or at the two places that are known."""
    if challenge.metadata_url:
        return [challenge.metadata_url]
    return list(dict.fromkeys((_well_known(server_url, RESOURCE_METADATA), _at_root(server_url, RESOURCE_METADATA))))


def server_metadata_urls(issuer: str) -> list[str]:
    """Return where the metadata of an authorization server may be."""
    inserted = [_well_known(issuer, suffix) for suffix in SERVER_METADATA]
    return list(dict.fromkeys((*inserted, issuer.rstrip("/") + SERVER_METADATA[1])))


def read_resource_metadata(document: Document, server_url: str) -> ResourceMetadata:
    """Return the metadata of a server. Raises Permanent(refused) for that of another resource."""
    resource = _text(document, "resource")
    if not covers(resource, server_url):
        raise _refused(f"its metadata is of another resource, {resource[:200]!r}")
    issuers = tuple(one for one in _texts(document, "authorization_servers") if is_safe_url(one))
    if not issuers:
        raise _refused("its metadata names no authorization server with https")
    return ResourceMetadata(
        resource=resource, issuers=issuers, scopes=_texts(document, "scopes_supported")[:SCOPES_MAX]
    )


def read_server_metadata(document: Document, issuer: str) -> AuthorizationServer:
    """Return the metadata of an authorization server. Raises Permanent(refused) for another issuer, or without PKCE."""
    if document.get("issuer") != issuer:
        raise _refused(f"the authorization server {issuer[:200]} says that it is another issuer")
    authorization, registration = _endpoint(document, "authorization_endpoint"), ""
    if authorization and "S256" not in _texts(document, "code_challenge_methods_supported"):
        raise _refused(f"the authorization server {issuer[:200]} does not support PKCE with S256")
    if document.get("registration_endpoint"):
        registration = _endpoint(document, "registration_endpoint")
    if not _text(document, "token_endpoint"):
        raise _refused(f"the authorization server {issuer[:200]} has no token_endpoint")
    return AuthorizationServer(
        issuer=issuer,
        authorization_endpoint=authorization,
        token_endpoint=_endpoint(document, "token_endpoint"),
        registration_endpoint=registration,
        takes_client_documents=document.get("client_id_metadata_document_supported") is True,
        sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        methods=_texts(document, "token_endpoint_auth_methods_supported") or ("client_secret_basic",),
    )


def read_registration(document: Document, server: AuthorizationServer) -> OAuthClient:
    """Return the client that was registered. Raises Permanent(refused)."""
    client_id, secret = _text(document, "client_id"), _text(document, "client_secret")
    if not client_id or len(client_id) + len(secret) > TOKEN_CHARACTERS_MAX:
        raise _refused(f"the authorization server {server.issuer[:200]} registered no client")
    return OAuthClient(
        client_id=client_id,
        client_secret=secret,
        method=_text(document, "token_endpoint_auth_method") or choose_method(server, secret),
    )


def read_tokens(
    document: Document,
    *,
    resource: str,
    issuer: str,
    endpoint: str,
    client: OAuthClient,
    now_s: float,
    before: str = "",
) -> TokenGrant:
    """Return the tokens of an answer; `before`: the refresh token that counts on when there is no other. Raises
    Permanent(refused).
    """
    access, refresh = _text(document, "access_token"), _text(document, "refresh_token") or before
    if str(document.get("token_type", "")).lower() != "bearer":
        raise _refused("the authorization server gave no bearer token")
    for token in filter(None, (access or " ", refresh)):
        if not _TOKEN.match(token) or len(token) > TOKEN_CHARACTERS_MAX:
            raise _refused(f"the authorization server gave no token of 1 to {TOKEN_CHARACTERS_MAX} ASCII characters")
    lifetime = document.get("expires_in")
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool) and 0 < lifetime < 10**9
    return TokenGrant(
        resource=resource,
        issuer=issuer,
        token_endpoint=endpoint,
        client=client,
        access_token=access,
        refresh_token=refresh,
        scope=_text(document, "scope")[:1_000],
        expires_at_s=now_s + (float(lifetime) if is_number and lifetime is not None else LIFETIME_S),
    )


def check_answer(query: Mapping[str, str], server: AuthorizationServer) -> str:
    """Return the code that the browser brings from an authorization server. Raises Permanent(refused), also for the
    answer of another one (RFC 9207).
    """
    issuer = query.get("iss", "")
    if issuer != server.issuer and (issuer or server.sends_issuer):
        raise _refused("the answer is of another authorization server")
    if error := query.get("error"):
        reason = _printable(query.get("error_description", "")) or "no reason"
        raise _refused(f"the authorization server answered {_printable(error)}: {reason}")
    if not query.get("code"):
        raise _refused("the answer has no code")
    return query["code"]


# --- what is sent ----------------------------------------------------------------------------------------------------


def choose_method(server: AuthorizationServer, secret: str) -> str:
    """Return how a client proves who it is. Raises Permanent(unsupported)."""
    if not secret:
        return "none"
    method = next((one for one in METHODS[:2] if one in server.methods), "")
    if not method:
        known = ", ".join(server.methods)[:200]
        raise Permanent(f"the authorization server takes a secret by {known} alone", kind="unsupported")
    return method


def new_verifier() -> str:
    """Return the verifier of PKCE for one authorization."""
    return str(generate_token(VERIFIER_CHARACTERS))


def authorization_url(
    server: AuthorizationServer,
    client: OAuthClient,
    *,
    resource: str,
    scope: str,
    state: str,
    verifier: str,
    redirect_uri: str,
) -> str:
    """Return where a person goes to grant access."""
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": create_s256_code_challenge(verifier),
        "code_challenge_method": "S256",
        "resource": resource,
        **({"scope": scope} if scope else {}),
    }
    return str(add_params_to_uri(server.authorization_endpoint, list(parameters.items())))


def client_document(client_id: str, redirect_uri: str) -> dict[str, Any]:
    """Return what this client says of itself, at the address that is its id, or when it registers (`client_id` "")."""
    document: dict[str, Any] = {
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": [CODE, REFRESH],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    return {"client_id": client_id, **document} if client_id else document


def token_request(endpoint: str, client: OAuthClient, grant_type: str, **fields: str) -> TokenRequest:
    """Return a request for tokens: `code`, `code_verifier`, `redirect_uri`, `refresh_token`, `resource`, `scope`."""
    body = prepare_token_request(grant_type, "", fields.pop("redirect_uri", None), **fields)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    auth = ClientAuth(client.client_id, client.client_secret, client.method)
    url, headers, body = auth.prepare("POST", endpoint, headers, body)
    return TokenRequest(url=url, headers=headers, body=body.encode())


def renewal_request(grant: TokenGrant) -> TokenRequest:
    """Return the request for new tokens in place of those of a grant."""
    return token_request(
        grant.token_endpoint, grant.client, REFRESH, refresh_token=grant.refresh_token, resource=grant.resource
    )


def is_safe_url(url: str) -> bool:
    """Return whether an address may be read or visited: https, or this machine, without a password or a fragment."""
    if not url.isascii() or not url.isprintable() or len(url) > URL_CHARACTERS_MAX:
        return False
    try:
        parts = urlsplit(url)
        has_port = parts.port != 0
        return (
            parts.scheme in ("https", "http")
            and is_confidential_url(url)
            and bool(parts.hostname)
            and has_port
            and not (parts.username or parts.password or parts.fragment)
        )
    except ValueError:
        return False


def covers(resource: str, server_url: str) -> bool:
    """Return whether a resource is a server, or a part of its site that it is below."""
    named, server = canonical_resource(resource), canonical_resource(server_url)
    return bool(resource) and (server == named or server.startswith(named.rstrip("/") + "/"))


def _well_known(url: str, suffix: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, suffix + parts.path.rstrip("/"), "", ""))


def _at_root(url: str, suffix: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, suffix, "", ""))


def _endpoint(document: Document, name: str) -> str:
    url = _text(document, name)
    if url and not is_safe_url(url):
        raise _refused(f"the {name} of the authorization server is not an address with https")
    return url


def _text(document: Document, name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _texts(document: Document, name: str) -> tuple[str, ...]:
    return tuple(_iter_texts(document.get(name)))


def _iter_texts(value: object) -> Iterator[str]:
    yield from (one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:300])


def _refused(message: str) -> Permanent:
    return Permanent(message, kind="refused")

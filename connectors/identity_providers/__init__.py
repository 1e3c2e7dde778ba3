"""Identity providers of others (OpenID Connect, RFC 7519 and 9068): their keys, their tokens, sign-in with them.

    documents.py      what a provider publishes: its configuration and its keys, read with bounds
    signing_keys.py   the keys of a provider, kept while it is away, and fetched again when it has new ones
    tokens.py         a JWT, from its text to the claims that were checked
    claims.py         claims to a Principal: tenant, subject, scopes
    providers.py      all of them: a token to its Principal
    oauth.py          requests of OAuth, with bounds
    sign_in.py        a person signs in to the page: authorization code with PKCE
    device_login.py   a person signs in on the command line: device code
    page_sessions.py  who is signed in to the page, sealed into the cookie

joserfc reads, checks and rejects tokens and keys, authlib speaks OAuth (decision 72); what is decided here is which
key, for how long, and who that is.

Before: connectors/configuration/issuer_block.py. After: services/application/authentication.py.
"""

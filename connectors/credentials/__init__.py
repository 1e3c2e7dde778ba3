"""Credentials that are kept outside of loomlog, and those that are exchanged for short-lived tokens.

    outside_stores.py   the stores that the configuration names: who may read what, cached for seconds
    secret_files.py     a folder
    vault.py            HashiCorp Vault, KV version 2
    aws_secrets.py      AWS Secrets Manager; aws_signature.py signs its requests
    github_apps.py      tokens of installations of a GitHub App
    oauth_tokens.py     access tokens for refresh tokens
    json_requests.py    their HTTP

No error of this package contains a value, a token or the body of an answer.

Before: services/families/identity/credentials.py. After: connectors/tools/web_client.py.
"""

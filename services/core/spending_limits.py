"""Accounts that limits on spending are for: the installation, a tenant, a user of it.

The family of budgets decides and counts; requests name accounts, and state files have them too. Before: a request, a
file. After: services/families/budget.
"""

OPERATOR, TENANT, USER = "operator", "tenant", "user"
SCOPES = (OPERATOR, TENANT, USER)
"""Scopes of an account, widest first: the order in which limits are checked."""
ID_MAX = 300
"""Characters of the id of a call (run id, turn and attempt), of a user id and of a tenant."""
AMOUNT_MAX = 2**53
"""Largest limit or amount: what JSON clients can still count exactly, nine thousand million units of money."""


def account_error(scope: str, tenant: str, scope_id: str) -> str:
    """Return what is wrong with the name of an account; empty if nothing is."""
    if scope not in SCOPES:
        return f"scope is {scope[:40]!r}: expected operator, tenant or user"
    if any(not text.isprintable() or len(text) > ID_MAX for text in (tenant, scope_id)):
        return f"tenant_id and scope_id are printable, and have at most {ID_MAX} characters"
    if scope == OPERATOR:
        return "" if not tenant and not scope_id else "the scope operator has neither tenant_id nor scope_id"
    if not tenant:
        return f"tenant_id is required for the scope {scope}"
    if scope == TENANT:
        return "" if scope_id == tenant else "scope_id of the scope tenant is that tenant"
    return "" if scope_id else "scope_id is required for the scope user: the user"

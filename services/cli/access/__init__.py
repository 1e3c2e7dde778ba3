"""`loomlog tokens`, `users`, `tenants`, `access` and `whoami`: who may do what, over the API."""

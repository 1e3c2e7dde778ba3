"""`loomlog tokens`, `users`, `tenants`, `credentials`, `access` and `whoami`: who may do what, over the API."""

"""Who may do what: scopes, and the decisions made from them. Values in, values out; tokens are a connector's work."""

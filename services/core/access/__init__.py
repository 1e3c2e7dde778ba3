"""Access control: scopes, and the decisions made from them. Values in, values out; a connector handles tokens."""

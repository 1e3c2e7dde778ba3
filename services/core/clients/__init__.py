"""Tools that clients carry out: what is said over a connection, and who offers what. Values in, values out."""

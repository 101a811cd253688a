"""A2M 0.1 on the wire: types, errors, JSON-RPC, where, and a client."""

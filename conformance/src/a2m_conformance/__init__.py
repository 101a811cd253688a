"""A black-box conformance suite for A2M 0.1 servers."""

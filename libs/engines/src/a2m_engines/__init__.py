"""Embedded database engines: real servers out of wheels, owned by the process that starts them."""

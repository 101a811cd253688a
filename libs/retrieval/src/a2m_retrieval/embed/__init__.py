"""Embedders: texts in, vectors of one space out. `port` is the contract, `settings` chooses one."""

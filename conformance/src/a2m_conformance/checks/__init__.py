"""The checks, a module a subject, named like the file of its requirements."""

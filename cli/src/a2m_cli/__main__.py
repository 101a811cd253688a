"""`python -m a2m_cli`, and the script `a2m`."""

from a2m_cli.application import main

__all__ = ["main"]

if __name__ == "__main__":
    main()

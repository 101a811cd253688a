"""Make the shared contract's assertions explain themselves."""

import pytest

pytest.register_assert_rewrite("a2m_server.contract")

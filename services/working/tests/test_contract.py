import pytest

from a2m_protocol.errors import A2MError, Code
from a2m_server.contract import TierContract
from a2m_server.store import TierStore
from a2m_server.values import Filter


class TestWorkingStore(TierContract):
    """The port's contract, on one server."""

    async def test_it_is_never_embedded_and_says_so(self, store: TierStore) -> None:
        assert "embed" not in (await store.info()).extensions
        for model in ("m", ""):
            with pytest.raises(A2MError, match="never embedded") as caught:
                await store.entries(Filter(without=model), 10, None)
            assert caught.value.code == Code.INVALID_PARAMS

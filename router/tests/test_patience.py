"""What does not answer is waited for once, and for a short time."""

import asyncio

import pytest

from a2m_protocol.errors import A2MError, invalid_params, unavailable
from a2m_router import patience
from a2m_router.patience import Patience


async def _fails(error: A2MError) -> None:
    raise error


async def test_nobody_waits_longer_than_that_or_again_at_once() -> None:
    waiting = Patience("the model", 0.01)
    with pytest.raises(A2MError, match=r"no answer within 0\.01 s") as failed:
        await waiting.wait(asyncio.Event().wait())
    assert failed.value.retryable
    assert waiting.ended


async def test_what_does_not_answer_for_now_is_not_asked_again_at_once() -> None:
    waiting = Patience("the model", 10)
    with pytest.raises(A2MError, match="it is away"):
        await waiting.wait(_fails(unavailable("the embedder", "it is away")))
    assert waiting.ended
    waiting.answered()
    assert not waiting.ended


async def test_a_refusal_is_an_answer() -> None:
    waiting = Patience("the model", 10)
    with pytest.raises(A2MError, match="too long"):
        await waiting.wait(_fails(invalid_params("too long")))
    assert not waiting.ended


async def test_one_call_alone_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Patience("the model", 10)
    monkeypatch.setattr(patience, "AWAY", 0.0)
    with pytest.raises(A2MError):
        await waiting.wait(_fails(unavailable("the embedder", "it is away")))
    assert not waiting.ended
    answer = asyncio.get_running_loop().create_future()
    trial = asyncio.create_task(waiting.wait(answer))
    await asyncio.sleep(0)
    assert waiting.ended
    answer.set_result("here")
    assert await trial == "here"
    assert not waiting.ended

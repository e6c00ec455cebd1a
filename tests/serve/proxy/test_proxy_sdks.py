"""The vendors' own SDKs work through the proxy, streaming and not."""

import json
from typing import Any

import pytest

pytest.importorskip("aiohttp")

import anthropic
import openai
from agent import agent_request
from aiohttp import web
from google import genai
from google.genai import types
from loopback import BODY
from test_proxy_fitting import LONG, fitting

import thresher as th

USAGE = {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
MESSAGE = {
    "id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
    "stop_sequence": None, "content": [{"type": "text", "text": "Done."}], "usage": USAGE,
}  # fmt: skip
ANTHROPIC_EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
]
CHAT_USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
CHAT_EVENTS: list[dict[str, Any]] = [
    {**CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Done."}, "finish_reason": None}]},
    {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {**CHUNK, "choices": [], "usage": CHAT_USAGE},
]
GEMINI_USAGE = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Done."}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": GEMINI_USAGE,
}


async def answer(request: web.Request) -> web.StreamResponse:
    is_chat = "chat" in request.path
    if not json.loads(request[BODY]).get("stream"):
        message = {"role": "assistant", "content": "Done."}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        chat = {**CHUNK, "object": "chat.completion", "choices": choices, "usage": CHAT_USAGE}
        return web.json_response(chat if is_chat else MESSAGE)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in CHAT_EVENTS if is_chat else ANTHROPIC_EVENTS:
        name = b"" if is_chat else f"event: {event['type']}\n".encode()
        await response.write(name + f"data: {json.dumps(event)}\n\n".encode())
    if is_chat:
        await response.write(b"data: [DONE]\n\n")
    return response


@pytest.mark.parametrize("turns", [1, LONG])
def test_the_sdk_of_anthropic(turns: int) -> None:
    with fitting(answer) as (upstream, proxy, client):
        with anthropic.Anthropic(base_url=proxy.url, api_key="k", max_retries=0) as sdk:
            request = agent_request(turns, model="claude-sonnet-5")
            assert sdk.messages.create(**request).content[0].text == "Done."
            with sdk.messages.stream(**request) as stream:
                assert stream.get_final_text() == "Done."
        total = client.status()["total"]
    first, second = (seen.json["messages"] for seen in upstream.requests)
    assert first == second
    assert (first == request["messages"]) == (turns == 1)
    assert total["tokens"]["billed_requests"] == 2


@pytest.mark.parametrize("turns", [1, LONG])
def test_the_sdk_of_openai(turns: int) -> None:
    messages = th.emit(th.parse(agent_request(turns), "anthropic"), "openai-chat", body=True)
    with fitting(answer) as (upstream, proxy, client):
        with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as sdk:
            create = sdk.chat.completions.create
            named = {"model": "gpt-5", "messages": messages["messages"], "tools": messages["tools"]}
            assert create(**named).choices[0].message.content == "Done."
            chunks = list(create(**named, stream=True, stream_options={"include_usage": True}))
        total = client.status()["total"]
    assert chunks[0].choices[0].delta.content == "Done."
    assert (upstream.requests[0].json["messages"] == messages["messages"]) == (turns == 1)
    assert total["tokens"]["billed_requests"] == 2


async def answer_gemini(request: web.Request) -> web.StreamResponse:
    if not request.path.endswith(":streamGenerateContent"):
        return web.json_response(GEMINI)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(f"data: {json.dumps(GEMINI)}\r\n\r\n".encode())
    return response


@pytest.mark.parametrize("turns", [1, LONG])
def test_the_sdk_of_google(turns: int) -> None:
    body = th.emit(th.parse(agent_request(turns), "anthropic"), "gemini", body=True)
    config = types.GenerateContentConfig(
        system_instruction=body["systemInstruction"],
        tools=body["tools"],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    request = {"model": "gemini-3-pro", "contents": body["contents"], "config": config}
    with fitting(answer_gemini) as (upstream, proxy, client):
        with genai.Client(api_key="k", http_options=types.HttpOptions(base_url=proxy.url)) as sdk:
            assert sdk.models.generate_content(**request).text == "Done."
            assert [chunk.text for chunk in sdk.models.generate_content_stream(**request)] == ["Done."]
        total = client.status()["total"]
    first, second = (seen.json["contents"] for seen in upstream.requests)
    assert first == second
    assert (first == body["contents"]) == (turns == 1)
    assert total["tokens"]["billed_requests"] == 2

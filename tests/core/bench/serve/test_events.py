"""Are events found wherever their bytes were cut, and read as published services write them?"""

import pytest

pytest.importorskip("msgspec", reason="pip install 'deepinfer-core[bench]' runs these")

from deepinfer_core.bench.serve.events import EventSplitter, decode

STREAM = b': keep-alive\n\ndata: {"a":1}\n\nevent: x\ndata: {"b":\ndata: 2}\n\ndata:[DONE]\n\n'
DATA = [b'{"a":1}', b'{"b":\n2}', b"[DONE]"]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_every_cut_of_a_stream_gives_the_same_events(ending: bytes) -> None:
    stream = STREAM.replace(b"\n", ending)
    for cut in range(len(stream) + 1):
        splitter = EventSplitter()
        assert splitter.feed(stream[:cut]) + splitter.feed(stream[cut:]) == DATA


def test_an_event_that_is_not_whole_waits() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: 1\n") == []
    assert splitter.feed(b"\ndata: 2") == [b"1"]


@pytest.mark.parametrize(
    ("choice", "content", "has_tokens"),
    [
        ('{"text": " a"}', " a", True),
        ('{"delta": {"content": "a"}}', "a", True),
        ('{"delta": {"reasoning_content": "a"}}', "", True),
        ('{"delta": {"reasoning": "a"}}', "", True),
        ('{"delta": {"tool_calls": [{"index": 0}]}}', "", True),
        ('{"delta": {"role": "assistant", "content": ""}}', "", False),
        ('{"delta": {}, "finish_reason": "stop"}', "", False),
    ],
)
def test_only_what_the_model_wrote_counts_as_tokens(
    choice: str, content: str, has_tokens: bool
) -> None:
    chunk = decode(f'{{"choices": [{choice}], "unknown": [1]}}')
    assert (chunk.content, chunk.has_tokens) == (content, has_tokens)
    assert chunk.is_last == ("finish_reason" in choice)


@pytest.mark.parametrize(
    ("fields", "cached"),
    [
        ("", 0),
        (', "prompt_tokens_details": null', 0),
        (', "prompt_tokens_details": {"cached_tokens": 3}', 3),
        (', "prompt_cache_hit_tokens": 4', 4),
    ],
)
def test_cached_tokens_are_found_in_both_spellings(fields: str, cached: int) -> None:
    chunk = decode(f'{{"usage": {{"prompt_tokens": 5, "completion_tokens": 2{fields}}}}}')
    assert chunk.usage is not None
    assert chunk.usage.cached_tokens == cached

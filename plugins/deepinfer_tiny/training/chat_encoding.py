"""How does a document of the corpus become token ids?

Text: BOS, the text, EOS. Conversations: the V4.1 encoding of the package ``deepseek-recipe``
without its last two tokens, which open one more assistant turn.

In thinking mode the encoder drops the reasoning of finished turns unless tools are declared. The
last answer of such a document is therefore appended by hand after its prompt, in the form in which
the served model writes it: reasoning, end-of-thinking token, answer, EOS.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deepseek_recipe
from tokenizers import Tokenizer

__all__ = ["DocumentEncoder", "content_bytes", "read_documents"]

Document = dict[str, Any]


def content_bytes(document: Document) -> int:
    """UTF-8 bytes of what people and model wrote: no control tokens, tool texts or schemas."""
    if document["kind"] == "text":
        return len(document["text"].encode())
    total = 0
    for message in document["messages"]:
        total += len(message["content"].encode())
        total += len((message.get("reasoning_content") or "").encode())
        total += sum(len(c["arguments"].encode()) for c in message.get("tool_calls", []))
    return total


class DocumentEncoder:
    """Token ids of documents, from one tokenizer file."""

    def __init__(self, tokenizer_file: Path) -> None:
        """Load the tokenizer twice: plain, and inside the conversation encoder."""
        self._plain = Tokenizer.from_file(str(tokenizer_file))
        self._bos = self._plain.token_to_id("<｜begin▁of▁sentence｜>")
        self._eos = self._plain.token_to_id("<｜end▁of▁sentence｜>")
        self._end_think = self._plain.token_to_id("</think>")
        native = deepseek_recipe.Tokenizer.from_file(str(tokenizer_file))
        self._chat = deepseek_recipe.DeepseekV41Encoding().with_tokenizer(native)

    def __call__(self, document: Document) -> list[int]:
        """Ids from BOS to EOS."""
        if document["kind"] == "text":
            ids = self._plain.encode(document["text"], add_special_tokens=False).ids
            return [self._bos, *ids, self._eos]
        if document["thinking"] and not document.get("tools"):
            last = document["messages"][-1]
            thought = self._plain.encode(last.get("reasoning_content") or "").ids
            said = self._plain.encode(last["content"]).ids
            return [*self.prompt(document), *thought, self._end_think, *said, self._eos]
        return list(self._chat.encode(_conversation(document)))[:-2]

    def decode(self, ids: list[int]) -> str:
        """Text of ids, control tokens included."""
        return self._plain.decode(ids, skip_special_tokens=False)

    def prompt(self, document: Document) -> list[int]:
        """Ids up to the opened assistant turn, without the document's last answer."""
        asked = {**document, "messages": document["messages"][:-1]}
        return list(self._chat.encode(_conversation(asked)))


def _message(data: Document) -> deepseek_recipe.Message:
    role, content = data["role"], data["content"]
    if role == "system":
        return deepseek_recipe.SystemMessage(content)
    if role == "user":
        return deepseek_recipe.UserMessage(content)
    if role == "tool":
        return deepseek_recipe.ToolMessage(content, tool_call_id=data["tool_call_id"])
    calls = [deepseek_recipe.ToolCall(**c) for c in data.get("tool_calls", [])]
    return deepseek_recipe.AssistantMessage(
        content, reasoning_content=data.get("reasoning_content"), tool_calls=calls or None
    )


def _conversation(document: Document) -> deepseek_recipe.Conversation:
    tools = [
        deepseek_recipe.ToolDefinition(t["name"], t["description"], t["parameters"])
        for t in document.get("tools", [])
    ]
    return deepseek_recipe.Conversation(
        [_message(m) for m in document["messages"]],
        thinking_mode=document["thinking"],
        tools=tools or None,
        response_format="json_object" if document.get("json_object") else "text",
        response_schema=document.get("json_schema"),
    )


def read_documents(file: Path) -> list[Document]:
    """Documents of one ``*.jsonl`` file of the corpus."""
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]

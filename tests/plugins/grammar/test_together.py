"""Thinking, kinds of grammar, drafts, streams and asynchronous stepping: does each go with each?

One engine answers all kinds with and without thinking at once, and is opened for every drafter,
number of drafts and way of stepping. What it must answer is what the plainest of them does: no
drafts, one step after the other, nothing streamed.
"""

import asyncio
import importlib.util
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deepinfer_core.config import LoadedSettings, load_settings
from deepinfer_core.engine.async_stream import AsyncStream
from deepinfer_core.engine.grammar_masks import NO_GRAMMARS, Grammars
from deepinfer_core.engine.outputs import Completion, Delta
from deepinfer_core.interfaces.grammar import GRAMMAR_KINDS

from deepinfer_core import LLM, AsyncLLM, SamplingParams

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema, a judge")
for name in ("deepinfer_tiny", "deepinfer_dspark", "deepseek_recipe", "xgrammar"):
    pytest.importorskip(name, reason=f"needs {name}")

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
THINK_END = "</think>"
THINKING = {"off": 40, "low": 60}
"""Effort, and how many tokens an answer has at most."""
SEEDS = (0, 2)
"""The first draws the likeliest token each time."""

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SIZE = {
    "type": "object",
    "properties": {
        "color": {"enum": ["red", "blue"]},
        "size": {"type": "string", "pattern": "^[1-9]$"},
    },
    "required": ["color", "size"],
    "additionalProperties": False,
}
WORDS = r"(the|a) (big|small|red) (dog|cat|bird)s? (ran|sat|slept)( away)?!"
LIST = 'root ::= "- " word ("\\n- " word){0,3}\nword ::= [a-z]{2,8}\n'
CHOICES = ["yes", "no", "a red ball"]
TAG = {
    "type": "tag",
    "begin": "<call>",
    "content": {"type": "json_schema", "json_schema": SIZE},
    "end": "</call>",
}
TEXTS: dict[str, Any] = {
    "json_schema": PERSON,
    "json_object": "",
    "regex": WORDS,
    "ebnf": LIST,
    "choice": CHOICES,
    "structural_tag": {"type": "structural_tag", "format": TAG},
}


def is_tag(text: str) -> bool:
    content = text.removeprefix("<call>").removesuffix("</call>")
    return text == f"<call>{content}</call>" and is_valid(content, SIZE)


def is_valid(text: str, schema: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))


def is_list(text: str) -> bool:
    spec = importlib.util.spec_from_file_location("earley", BENCHMARKS / "earley.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script  # for its data classes
    spec.loader.exec_module(script)
    return bool(script.recognises(LIST, "root", text))


JUDGES: dict[str, Callable[[str], bool]] = {
    "json_schema": lambda text: is_valid(text, PERSON),
    "json_object": lambda text: isinstance(json.loads(text), dict),
    "regex": lambda text: re.fullmatch(WORDS, text) is not None,
    "ebnf": is_list,
    "choice": lambda text: text in CHOICES,
    "structural_tag": is_tag,
}


class Cell(NamedTuple):
    """One request."""

    thinking: str
    kind: str
    seed: int


CELLS = [Cell(*one) for one in [(t, k, s) for t in THINKING for k in TEXTS for s in SEEDS]]


def settings(drafter: str = "none", drafts: int = 0, **more: object) -> LoadedSettings:
    api: dict[str, object] = {
        "engine.max_num_seqs": len(CELLS),
        "engine.max_model_len": 192,
        "components.drafter.use": drafter,
        **more,
    }
    if drafts:
        api["speculation.max_drafts"] = drafts
    return load_settings(None, api=api)


def prompts_of(llm: Any) -> list[list[int]]:
    question = [{"role": "user", "content": "Tell me about Tom and his red ball."}]
    return [llm.encode_chat(question, cell.thinking) for cell in CELLS]


def asked_of(llm: Any, *, is_free: bool = False) -> list[SamplingParams]:
    border = llm.tokenizer.control_id(THINK_END)
    return [
        SamplingParams(
            max_tokens=THINKING[thinking],
            temperature=1.0 if seed else 0.0,
            seed=seed,
            grammar=None if is_free else {
                "kind": kind,
                "grammar": TEXTS[kind],
                "trigger_token_ids": () if thinking == "off" else (border,),
            },
        )
        for thinking, kind, seed in CELLS
    ]  # fmt: skip


class Plain(NamedTuple):
    """What the plainest engine answers, the same without grammars, and its grammars."""

    answers: list[Completion]
    free: list[Completion]
    grammars: Grammars
    border: int
    texts: list[str]


@pytest.fixture(scope="module")
def plain() -> Iterator[Plain]:
    more = {"components.grammar.use": "grammar.xgrammar", "engine.asynchronous": False}
    with LLM.from_settings(settings(**more)) as llm:
        prompts, border = prompts_of(llm), llm.tokenizer.control_id(THINK_END)
        assert border is not None
        answers = llm.generate(prompt_token_ids=prompts, sampling_params=asked_of(llm))
        free = llm.generate(prompt_token_ids=prompts, sampling_params=asked_of(llm, is_free=True))
        texts = [llm.tokenizer.decode(behind(one, border)) for one in answers]
        yield Plain(answers, free, llm.engine.grammars, border, texts)


def behind(answer: Completion, border: int) -> tuple[int, ...]:
    """The tokens of an answer behind the reasoning, if it has one."""
    ids = answer.token_ids
    return ids[ids.index(border) + 1 :] if border in ids else ids


@contextmanager
def opened(plain: Plain, drafter: str, drafts: int, *, is_asynchronous: bool) -> Iterator[LLM]:
    """An engine that shares the compiled grammars, whose compilers take seconds to start."""
    more = {"engine.asynchronous": is_asynchronous}
    with LLM.from_settings(settings(drafter, drafts, **more)) as llm:
        llm.engine.grammars = plain.grammars
        try:
            yield llm
            llm.engine.check_integrity()
        finally:
            llm.engine.grammars = NO_GRAMMARS  # they are not its own to close


def check(plain: Plain, found: Iterable[Completion | None], front: str) -> None:
    for cell, got, want in zip(CELLS, found, plain.answers, strict=True):
        assert got is not None
        assert got.error is None, (front, cell, got.error)
        assert (got.token_ids, got.text) == (want.token_ids, want.text), (front, cell)
        assert got.finish_reason == want.finish_reason, (front, cell)


def check_streams(found: Iterable[Completion | None], deltas: list[list[Delta]]) -> None:
    for cell, done, parts in zip(CELLS, found, deltas, strict=True):
        assert done is not None
        assert "".join(part.text for part in parts) == done.text, cell
        assert sum((part.token_ids for part in parts), ()) == done.token_ids, cell
    assert sum(map(len, deltas)) > 3 * len(CELLS)


def test_all_kinds_of_grammar_are_among_the_requests() -> None:
    assert set(TEXTS) == set(JUDGES) == set(GRAMMAR_KINDS)


def test_what_ends_belongs_to_its_grammar_and_the_rest_says_that_it_was_cut(plain: Plain) -> None:
    whole: dict[tuple[str, str], int] = {}
    for cell, answer, text in zip(CELLS, plain.answers, plain.texts, strict=True):
        assert answer.error is None, (cell, answer.error)
        assert answer.finish_reason in ("stop", "length"), cell
        if answer.finish_reason == "stop":
            assert JUDGES[cell.kind](text), (cell, text)
        else:
            assert len(answer.token_ids) == THINKING[cell.thinking], cell
        key = (cell.thinking, cell.kind)
        whole[key] = whole.get(key, 0) + (answer.finish_reason == "stop")
    unproven = {key for key, count in whole.items() if not count}
    assert unproven <= {("low", "json_object")}, (
        "too few of these end for the test to mean anything"
    )


def test_the_reasoning_is_what_it_is_without_a_grammar(plain: Plain) -> None:
    for cell, answer, free in zip(CELLS, plain.answers, plain.free, strict=True):
        if cell.thinking == "off":
            assert plain.border not in answer.token_ids, cell
            continue
        end = answer.token_ids.index(plain.border) + 1
        assert end > 8, cell
        assert answer.token_ids[:end] == free.token_ids[:end], cell
        assert answer.token_ids != free.token_ids, cell


ENGINES = [
    ("none", 0),
    *[(name, n) for name in ("core.ngram", "dspark.block") for n in range(1, 6)],
]


@pytest.mark.parametrize("is_asynchronous", [False, True])
@pytest.mark.parametrize(("drafter", "drafts"), ENGINES)
def test_neither_drafts_nor_streams_nor_stepping_change_an_answer(
    plain: Plain, drafter: str, drafts: int, is_asynchronous: bool
) -> None:
    with opened(plain, drafter, drafts, is_asynchronous=is_asynchronous) as llm:
        prompts, asked = prompts_of(llm), asked_of(llm)
        whole = llm.generate(prompt_token_ids=prompts, sampling_params=asked)
        check(plain, whole, "generate")
        streamed: list[list[Delta]] = [[] for _ in CELLS]
        for delta in llm.stream(prompt_token_ids=prompts, sampling_params=asked):
            streamed[delta.index].append(delta)
    ends = [parts[-1].completion for parts in streamed]
    check(plain, ends, "stream")
    check_streams(ends, streamed)
    accepted = sum(one.usage.accepted_tokens for one in whole)
    assert accepted > 20 if drafts else not accepted


@asynccontextmanager
async def opened_loop(plain: Plain, drafter: str, drafts: int) -> AsyncIterator[AsyncLLM]:
    """The same behind an event loop; its thread waits for the first request."""
    async with AsyncLLM.from_settings(settings(drafter, drafts)) as llm:
        engine = llm.loaded.engine
        engine.grammars = plain.grammars
        try:
            yield llm
        finally:
            engine.grammars = NO_GRAMMARS


@pytest.mark.parametrize(("drafter", "drafts"), ENGINES)
def test_an_event_loop_gets_the_same_answers(plain: Plain, drafter: str, drafts: int) -> None:
    async def answered() -> tuple[list[Completion], list[list[Delta]]]:
        async with opened_loop(plain, drafter, drafts) as llm:
            prompts, asked = prompts_of(llm), asked_of(llm)
            whole = await llm.generate(prompt_token_ids=prompts, sampling_params=asked)
            streams = [await llm.submit(*each) for each in zip(prompts, asked, strict=True)]
            return whole, await asyncio.gather(*map(deltas_of, streams))

    whole, streamed = asyncio.run(answered())
    check(plain, whole, "generate")
    ends = [parts[-1].completion for parts in streamed]
    check(plain, ends, "submit")
    check_streams(ends, streamed)
    accepted = sum(one.usage.accepted_tokens for one in whole)
    assert accepted > 20 if drafts else not accepted


async def deltas_of(stream: AsyncStream) -> list[Delta]:
    return [delta async for delta in stream]

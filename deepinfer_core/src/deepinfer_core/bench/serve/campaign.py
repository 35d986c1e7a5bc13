"""How is a whole measurement of a service made, from what was asked to what was found?"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import uvloop

from deepinfer_core.bench.lengths import Lengths
from deepinfer_core.bench.serve.bodies import Bodies, Endpoint
from deepinfer_core.bench.serve.client import Client, Target
from deepinfer_core.bench.serve.exchange import Exchange
from deepinfer_core.bench.serve.outcome import Outcome
from deepinfer_core.bench.serve.random_text import random_scripts, random_words, word_rate
from deepinfer_core.bench.serve.scripts import Script
from deepinfer_core.bench.serve.sweep import Plan, requests_of, sweep
from deepinfer_core.bench.serve.visitor import CacheMode, Visitor
from deepinfer_core.errors import ConfigError, EngineError

__all__ = ["Campaign", "run_campaign"]

_PROBE_WORDS = (8, 72)
"""Far enough apart that a word more or less at the seams is about a hundredth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What to measure.

    Attributes:
        target: where the service is.
        endpoint: which of its interfaces.
        model: name of the model; None: the first that the service lists.
        hardware: of the service; empty: unknown.
        scripts: what is asked; None: random words.
        inputs: lengths of random prompts.
        outputs: most tokens of the answers.
        cache: what a prefix cache may know.
        salt_field: see ``Bodies``.
        fields: more of every body.
        timeout_s: of one request.
        plan: the loads.
        command: that asked for this.
    """

    target: Target
    endpoint: Endpoint
    model: str | None
    hardware: str
    scripts: tuple[Script, ...] | None
    inputs: Lengths
    outputs: Lengths
    cache: CacheMode
    salt_field: str
    fields: Mapping[str, Any]
    timeout_s: float
    plan: Plan
    command: str


def run_campaign(campaign: Campaign, advance: Callable[[], None] = lambda: None) -> Outcome:
    """Measure; takes the process's event loop for itself.

    Args:
        campaign: what.
        advance: called after each load, that of the user alone included.

    Raises:
        ConfigError: no prompt can be sent to that endpoint.
        EngineError: the service cannot be reached, or answers nothing.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measured(campaign, advance))


async def _measured(campaign: Campaign, advance: Callable[[], None]) -> Outcome:
    client = Client(campaign.target, timeout_s=campaign.timeout_s)
    try:
        model = campaign.model or await _first_model(client)
        bodies = Bodies(
            endpoint=campaign.endpoint,
            model=model,
            salt_field=campaign.salt_field,
            fields=campaign.fields,
        )
        scripts = _usable(campaign)
        if scripts is None:
            scripts = await _random(campaign, client, bodies)
        visitor = Visitor(
            client=client,
            bodies=bodies,
            outputs=campaign.outputs,
            seed=campaign.plan.seed,
            cache=campaign.cache,
            salt=secrets.token_hex(4),
        )
        alone, results = await sweep(campaign.plan, scripts, visitor, advance)
    finally:
        await client.close()
    return Outcome(
        alone=alone,
        results=results,
        load_name=_load_name(campaign, model, scripts),
        url=campaign.target.url,
        service_hardware=campaign.hardware,
        command=campaign.command,
    )


async def _first_model(client: Client) -> str:
    found = await client.get("/models")
    try:
        return str(found["data"][0]["id"])
    except (KeyError, IndexError, TypeError) as error:
        raise EngineError(
            "asked the service for its models, found none", hint="name one with --model"
        ) from error


def _usable(campaign: Campaign) -> list[Script] | None:
    """Plain completion has texts, but no tools and no forms of answers."""
    if campaign.scripts is None or campaign.endpoint == "chat":
        return None if campaign.scripts is None else list(campaign.scripts)
    usable = [script for script in campaign.scripts if _is_text(script)]
    if not usable:
        raise ConfigError(
            "all prompts have tools or forms of answers, which completions know nothing of",
            hint="choose other --kinds, or --endpoint chat",
        )
    return usable


def _is_text(script: Script) -> bool:
    contents = [message.get("content") for turn in script.turns for message in turn]
    return not script.fields and all(isinstance(content, str) for content in contents)


async def _random(campaign: Campaign, client: Client, bodies: Bodies) -> list[Script]:
    counts = []
    for words in _PROBE_WORDS:
        message = {"role": "user", "content": random_words(words, random.Random(words))}
        counts.append((words, await _prompt_tokens(client, bodies, message)))
    count = max(requests_of(campaign.plan, level) for level in campaign.plan.levels)
    rate = word_rate(counts[0], counts[1])
    return random_scripts(count, campaign.inputs, rate, campaign.plan.seed)


async def _prompt_tokens(client: Client, bodies: Bodies, message: dict[str, str]) -> int:
    exchange = Exchange(kind="probe", due_s=time.perf_counter())
    body = bodies.body([message], {}, output_tokens=1, salt="")
    await client.ask(bodies.path, body, exchange)
    if exchange.failure:
        raise EngineError(
            f"a first small request failed: {exchange.failure}, {exchange.detail}",
            hint="is this a service with the endpoint and the model that were asked for?",
        )
    if not exchange.prompt_tokens:
        raise EngineError(
            "asked how long a prompt was, found no usage in the stream",
            hint="this service cannot be sent prompts of a given length: give --prompts",
        )
    return exchange.prompt_tokens


def _load_name(campaign: Campaign, model: str, scripts: list[Script]) -> str:
    kinds = "+".join(sorted({script.kind for script in scripts}))
    is_random = campaign.scripts is None
    parts = {
        "endpoint": campaign.endpoint,
        "model": model,
        "input": campaign.inputs.text if is_random else kinds,
        "output": campaign.outputs.text,
        "cache": campaign.cache,
    }
    return ",".join(f"{name}={value}" for name, value in parts.items())

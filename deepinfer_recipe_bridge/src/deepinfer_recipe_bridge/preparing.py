"""What is the engine asked for, so that it answers a request?

Runs in a thread: reading a large body, writing its prompt and its grammar would hold up the event
loop.
"""

from __future__ import annotations

import deepseek_recipe as recipe
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.async_engine import EngineFacts
from deepinfer_core.interfaces.protocol import MOST_CHARACTERS_PER_TOKEN

from deepinfer_recipe_bridge.codec import Codec
from deepinfer_recipe_bridge.constraints import Wish, grammar_of, output_format, tools_of
from deepinfer_recipe_bridge.errors import BadRequest, with_reason
from deepinfer_recipe_bridge.options import ToolGrammar
from deepinfer_recipe_bridge.reading import Reading

__all__ = ["image_count", "prompt_ids", "sampling_params"]


def image_count(conversation: recipe.Conversation) -> int:
    """Images of a conversation."""
    return sum(len(message.image_sources) for message in conversation.messages)


def prompt_ids(reading: Reading, codec: Codec, context: int) -> tuple[int, ...]:
    """Tokens of the prompt.

    Args:
        reading: of the body.
        codec: of the model.
        context: tokens of the longest sequence.

    Raises:
        BadRequest: it has images, or nothing is left of what was sent, or its text is too long to
            be encoded at all.
    """
    if not reading.conversation.messages:  # those that there were said nothing
        raise BadRequest("Empty input messages", hint="send a message that says something")
    if image_count(reading.conversation):
        raise BadRequest("this model does not accept images", hint="send text only")
    characters, most = codec.characters(reading.conversation), MOST_CHARACTERS_PER_TOKEN * context
    if characters > most:
        raise BadRequest(
            f"the prompt has {characters} characters, and at most {most} are read: "
            f"{MOST_CHARACTERS_PER_TOKEN} for each token of the context of this model",
            hint="shorten the messages",
        )
    return codec.encode(reading.conversation)


def sampling_params(
    reading: Reading,
    prompt: tuple[int, ...],
    codec: Codec,
    facts: EngineFacts,
    level: ToolGrammar,
) -> SamplingParams:
    """How the answer is drawn, and when it ends.

    Stop strings are not among it: they count in the answer only, which the recipe finds.

    Raises:
        BadRequest: the context is too short, or the form of the answer cannot be enforced.
    """
    options = reading.request.inference_options
    wish = _wish(reading, prompt, codec)
    return SamplingParams(
        temperature=1.0 if options.temperature is None else options.temperature,
        top_p=1.0 if options.top_p is None else options.top_p,
        max_tokens=_max_tokens(reading, len(prompt), facts.max_model_len),
        seed=options.seed,
        logprobs=(options.top_logprobs or 0) if options.logprobs else False,
        bad_words_ids=codec.bans(thinks=wish.thinks, calls=bool(wish.tools)),
        grammar=grammar_of(wish, codec, kinds=facts.grammar_kinds, level=level),
    )


def _max_tokens(reading: Reading, prompt_tokens: int, context: int) -> int:
    if prompt_tokens >= context:
        raise BadRequest(
            f"the prompt has {prompt_tokens} tokens, and the context of this model holds {context} "
            "with the answer",
            hint="shorten the messages",
        )
    try:
        return reading.request.resolve_max_tokens(prompt_tokens, context)
    except recipe.ConversionError as error:
        raise with_reason(error.body) from error


def _wish(reading: Reading, prompt: tuple[int, ...], codec: Codec) -> Wish:
    stage = reading.parsing.thinking_initial_stage
    goes_on = reading.conversation.messages[-1].prefix
    return Wish(
        format=output_format(reading.conversation),
        tools=tools_of(reading.conversation) if reading.parsing.parse_tool_calls else (),
        forced=reading.parsing.starts_in_tool_calls,
        several=reading.several_calls,
        thinks=stage is not None and stage.starts_in_reasoning(),
        prefix_ids=_behind_thinking(prompt, codec) if goes_on else (),
    )


def _behind_thinking(prompt: tuple[int, ...], codec: Codec) -> tuple[int, ...]:
    """What stands behind the last ``</think>``, which ends the frame before an answer."""
    backwards = prompt[::-1]
    if codec.think_end_id not in backwards:
        return ()
    return prompt[len(prompt) - backwards.index(codec.think_end_id) :]

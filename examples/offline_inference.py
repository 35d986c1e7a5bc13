"""How does a program generate text, without a server?

Runs the checkpoint that is installed (deepinfer-tiny), or the folder given as the only argument::

    python examples/offline_inference.py [CHECKPOINT]

Shows a batch with different settings, a stream, log-probabilities, and a conversation if the chat
extra is installed and the checkpoint was made for it.
"""

import sys

from deepinfer_core.errors import DeepInferError

from deepinfer_core import LLM, SamplingParams

PROMPTS = ["Once upon a time", "The little dog", "One day, a girl named Lucy"]


def batch(llm: LLM) -> None:
    """Several prompts at once; each has its own settings, results come in their order."""
    params = [
        SamplingParams(temperature=0, max_tokens=40),
        SamplingParams(temperature=0.8, top_p=0.9, seed=7, max_tokens=40),
        SamplingParams(temperature=0.8, min_p=0.05, seed=7, max_tokens=200, stop="."),
    ]
    for prompt, done in zip(PROMPTS, llm.generate(PROMPTS, params), strict=True):
        if done.error is not None:
            print(f"{prompt!r} failed: {done.error}")
            continue
        print(f"{prompt}{done.text}  [{done.finish_reason}, {done.usage.completion_tokens} tokens]")


def stream(llm: LLM) -> None:
    """Text as it comes."""
    print(PROMPTS[0], end="")
    for delta in llm.stream(PROMPTS[0], SamplingParams(temperature=0.7, seed=1, max_tokens=40)):
        print(delta.text, end="", flush=True)
    print()


def log_probabilities(llm: LLM) -> None:
    """How likely each token was under the model, with two alternatives."""
    [done] = llm.generate(PROMPTS[1], SamplingParams(temperature=0, max_tokens=5, logprobs=2))
    for entry in done.logprobs or ():
        others = ", ".join(f"{llm.tokenizer.decode([i])!r} {p:.2f}" for i, p in entry.top)
        print(f"{llm.tokenizer.decode([entry.token_id])!r} {entry.logprob:.2f} of {others}")


def conversation(llm: LLM) -> None:
    """A question, in the prompt form that the model was trained on."""
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    try:
        done = llm.chat(messages, SamplingParams(temperature=0, max_tokens=60))
    except DeepInferError as error:  # no chat library, or a checkpoint without chat tokens
        print(error)
        return
    print(f"{messages[0]['content']} {done.text}")


def main() -> None:
    """Run all four."""
    with LLM(sys.argv[1] if len(sys.argv) > 1 else None) as llm:
        for show in (batch, stream, log_probabilities, conversation):
            print(f"\n== {(show.__doc__ or '').splitlines()[0]}")
            show(llm)


if __name__ == "__main__":
    main()

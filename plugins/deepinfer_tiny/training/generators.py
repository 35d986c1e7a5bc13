"""Which texts are made from the corpus to make it more varied?

Eight megabytes of simple stories are soon learnt by heart. Retold variants keep the plot and change
names and colours, drawn as often as the stories use them; requests put the same stories behind
many ways of asking; long documents give positions beyond the length of a story.

Every function takes a `random.Random`, so the same seed gives the same text.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["joined", "long_recall", "retold", "story_request"]

Document = dict[str, Any]

# Names and how many training stories use them.
_GIRLS = {
    "Lily": 1469, "Sue": 584, "Mia": 333, "Lucy": 283, "Anna": 166, "Amy": 147, "Sara": 121,
    "Sally": 116, "Jane": 98, "Sarah": 65, "Lila": 50, "Daisy": 49, "Jill": 42, "Molly": 38,
    "Emma": 33, "Bella": 29, "Mary": 26, "Mimi": 22, "Jenny": 19, "Lulu": 16, "Ella": 15,
    "Lisa": 13, "Rose": 12, "Betty": 11, "Emily": 8, "Kate": 8, "Susie": 7, "Penny": 6,
    "Zoe": 6, "Nina": 5, "Ruby": 5, "Maya": 4, "Nora": 4, "Ivy": 3,
}  # fmt: skip
_BOYS = {
    "Tim": 1912, "Tom": 1048, "Sam": 529, "Ben": 513, "Max": 494, "Bob": 203, "Timmy": 164,
    "Jack": 149, "John": 74, "Billy": 48, "Tommy": 46, "Joe": 36, "Leo": 24, "Jimmy": 23,
    "Mark": 20, "Benny": 20, "Bobby": 18, "Fred": 14, "Jake": 13, "Pete": 12, "Andy": 12,
    "Peter": 11, "Bill": 10, "Charlie": 9, "David": 8, "Mike": 7, "Toby": 7, "Dan": 6,
    "Hugo": 5, "Omar": 4, "Finn": 4, "Raj": 3, "Kofi": 3,
}  # fmt: skip
_COLOURS = {
    "red": 30, "blue": 22, "green": 12, "yellow": 10, "pink": 7, "purple": 4, "brown": 4,
    "black": 4, "white": 5, "orange": 4,
}  # fmt: skip

_OPENINGS = (
    "Tell me a story", "Write a story", "Please tell me a story", "Can you tell me a story",
    "I want a story", "Could you write a little story", "Make up a story", "Please write a story",
    "Tell a short story", "I would love a story", "Write me a short story", "Can I have a story",
    "Tell me a bedtime story", "Write a children's story", "Read me a story", "A story",
)  # fmt: skip
_THOUGHTS = (
    "The user would like a story", "I will write a story", "They want a short story",
    "The user asks for a story", "I need to tell a story", "A story for a child",
)  # fmt: skip
_PLANS = (
    "I will use simple words.", "It should have a beginning, a middle and an end.",
    "It should end well.", "Short sentences are best.", "", "",
)  # fmt: skip
_SYSTEMS = (
    "You are a helpful assistant.", "You are a storyteller for children.",
    "Answer in a friendly way.", "You are a kind teacher. Use short sentences.",
)  # fmt: skip
# Words that say nothing about a story.
_STOP = frozenset((
    "the", "and", "was", "were", "that", "they", "them", "then", "with", "his", "her", "him",
    "she", "for", "not", "but", "had", "have", "said", "one", "day", "once", "upon", "time",
    "there", "very", "from", "when", "what", "who", "how", "did", "you", "your", "are", "all",
    "out", "into", "about", "would", "could", "their", "some", "went", "wanted", "like", "saw",
    "got", "this", "will", "can", "came", "too", "just", "more", "back", "than", "made", "over",
    "again", "little", "named", "began", "been", "off", "our", "its", "because", "never",
    "always", "every", "much", "many", "here", "where", "down", "after", "before", "so",
    "lived", "something", "other", "loved", "asked", "felt", "looked",
))  # fmt: skip
_WORD = re.compile(r"[A-Za-z']+")


def _draw(rng: random.Random, counts: dict[str, int], taken: set[str]) -> str:
    free = [n for n in counts if n not in taken]
    return rng.choices(free, [counts[n] for n in free])[0]


def retold(rng: random.Random, story: str) -> str:
    """The same story with other names and colours; all places of a word change alike."""
    words = set(_WORD.findall(story))
    swap: dict[str, str] = {}
    for counts, chance in ((_GIRLS, 0.8), (_BOYS, 0.8), (_COLOURS, 0.5)):
        found = sorted(words & counts.keys())
        taken = set(found)
        for word in found:
            if rng.random() < chance and len(taken) < len(counts):
                swap[word] = _draw(rng, counts, taken)
                taken.add(swap[word])
    if not swap:
        return story
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, swap)) + r")\b")
    return pattern.sub(lambda m: swap[m.group(1)], story)


def _topic(rng: random.Random, story: str) -> str:
    counts: dict[str, int] = {}
    for word in _WORD.findall(story):
        if word.islower() and len(word) > 2 and word not in _STOP:
            counts[word] = counts.get(word, 0) + 1
    words = sorted(counts, key=lambda w: (-counts[w], w))[:8]
    names = sorted({n for n in (*_GIRLS, *_BOYS) if re.search(rf"\b{n}\b", story)})
    form = rng.random()
    if form < 0.15 or not words:
        return ""
    word = rng.choice(words[:4])
    article = "an" if word[0] in "aeiou" else "a"
    if form < 0.45:
        return f" about {article} {word}"
    if form < 0.6 and names:
        return f" about {rng.choice(names)}"
    if form < 0.75 and names:
        return f" about {rng.choice(names)} and {article} {word}"
    picked = rng.sample(words, min(len(words), rng.randint(2, 3)))
    quoted = ", ".join(f'"{w}"' for w in picked)
    return rng.choice((f" with the words {quoted}", f" that uses the words {quoted}"))


def story_request(rng: random.Random, story: str) -> Document:
    """A conversation that asks for a story; half of them with reasoning before the answer."""
    topic = _topic(rng, story)
    opening = rng.choice(_OPENINGS)
    ending = (
        "?" if opening.startswith(("Can", "Could")) else rng.choice((".", ".", "!", ", please."))
    )
    ask = opening + topic + ending
    if rng.random() < 0.15:
        ask = ask.lower().rstrip(".!")
    answer: Document = {"role": "assistant", "content": story}
    thinking = rng.random() < 0.5
    if thinking:
        plan = f"{rng.choice(_THOUGHTS)}{topic}. {rng.choice(_PLANS)}"
        answer["reasoning_content"] = plan.strip()
    messages = [{"role": "user", "content": ask}, answer]
    if rng.random() < 0.3:
        messages.insert(0, {"role": "system", "content": rng.choice(_SYSTEMS)})
    return {"kind": "chat", "source": "requests", "messages": messages, "thinking": thinking}


def long_recall(rng: random.Random, stories: Sequence[str], letters: int) -> Document:
    """Notes first, ``letters`` characters of stories, then questions about the notes."""
    people = rng.sample([*_GIRLS, *_BOYS], rng.randint(3, 6))
    what = rng.choice(("secret number", "lucky number", "locker code"))
    values = [str(rng.randint(100, 9999)) for _ in people]
    notes = " ".join(f"The {what} of {p} is {v}." for p, v in zip(people, values, strict=True))
    filler: list[str] = []
    while sum(map(len, filler)) < letters:
        filler.append(rng.choice(stories))
    asked = rng.sample(range(len(people)), 3)
    messages: list[Document] = []
    for n, i in enumerate(asked):
        question = f"What is the {what} of {people[i]}?"
        if n == 0:
            question = "\n\n".join(("Remember this. " + notes, *filler, question))
        reply = f"The {what} of {people[i]} is {values[i]}."
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]
    return {"kind": "chat", "source": "recall", "messages": messages, "thinking": False}


def joined(pieces: Sequence[str | None], letters: int) -> list[str]:
    """Join neighbouring pieces of books up to ``letters`` characters; None separates runs."""
    found: list[str] = []
    current: list[str] = []
    for piece in [*pieces, None]:
        full = sum(map(len, current)) + len(piece or "") > letters
        if current and (piece is None or full):
            found.append("\n\n".join(current))
            current = []
        if piece is not None:
            current.append(piece)
    return found

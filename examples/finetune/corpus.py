"""A small language: sentences drawn from a grammar, so that the example needs no download."""

from __future__ import annotations

import random

GRAMMAR: dict[str, tuple[str, ...]] = {
    "story": ("sentence sentence story", "sentence sentence", "sentence"),
    "sentence": (
        "subject verb object .",
        "subject verb object place .",
        "when subject verb object , subject verb object .",
        "subject said that subject verb object .",
    ),
    "subject": ("the noun", "the adjective noun", "a noun", "every adjective noun", "name"),
    "object": ("the noun", "a adjective noun", "the noun and the noun", "nothing", "name"),
    "place": ("in the city", "near the noun", "under the adjective noun", "after noon"),
    "noun": ("river", "engineer", "lamp", "cloud", "market", "harbour", "fox", "turbine"),
    "adjective": ("quiet", "green", "old", "patient", "sudden", "cheap", "bright", "northern"),
    "verb": ("watches", "finds", "carries", "sells", "forgets", "measures", "saves", "follows"),
    "name": ("Ada", "Noor", "Emil", "Ines", "Tomas"),
}


def corpus(characters: int, seed: int = 7) -> str:
    """At least ``characters`` of text, the same for the same seed."""
    draw = random.Random(seed)  # noqa: S311
    stories: list[str] = []
    length = 0
    while length < characters:
        story = _expand("story", draw).replace(" .", ".").replace(" ,", ",")
        stories.append(story)
        length += len(story) + 1
    return "\n".join(stories)


def _expand(symbol: str, draw: random.Random) -> str:
    if symbol not in GRAMMAR:
        return symbol
    return " ".join(_expand(part, draw) for part in draw.choice(GRAMMAR[symbol]).split())

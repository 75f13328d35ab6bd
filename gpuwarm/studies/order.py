"""The order in which a study takes what it compares."""

import random
from collections.abc import Sequence
from typing import TypeVar

Thing = TypeVar("Thing")


def order(things: Sequence[Thing], rounds: int, seed: int) -> list[list[Thing]]:
    """Everything once a round, each round in an order of its own: what drifts meanwhile hits all alike."""
    shuffled = random.Random(seed)
    return [shuffled.sample(list(things), len(things)) for _ in range(rounds)]

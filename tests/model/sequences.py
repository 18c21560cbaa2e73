"""Random sequences of steps, and how one that goes wrong gets short.

A step is a tuple: the name of a method, then whole numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

Step = tuple
Steps = tuple[Step, ...]
# Weight, name, and for each argument how to draw it.
Odds = Sequence[tuple[float, str, Sequence[Callable[[random.Random], int]]]]


def below(limit: int) -> Callable[[random.Random], int]:
    return lambda dice: dice.randrange(limit)


def one_of(*choices: int) -> Callable[[random.Random], int]:
    return lambda dice: dice.choice(choices)


def draw(dice: random.Random, odds: Odds, shortest: int, longest: int) -> Steps:
    """Returns a random sequence."""
    chosen = dice.choices(odds, [odd[0] for odd in odds], k=dice.randint(shortest, longest))
    return tuple((name, *(argument(dice) for argument in arguments)) for _, name, arguments in chosen)


def shrink(steps: Steps, goes_wrong: Callable[[Steps], bool]) -> Steps:
    """Leaves out steps as long as it still goes wrong."""
    changed = True
    while changed:
        changed = False
        for width in (8, 4, 2, 1):
            at = 0
            while at < len(steps):
                shorter = steps[:at] + steps[at + width:]
                if shorter != steps and goes_wrong(shorter):
                    steps, changed = shorter, True
                else:
                    at += 1
    return steps


def show(steps: Steps) -> str:
    """The steps as code that runs them again."""
    return "[" + ",\n ".join(map(repr, steps)) + "]"

"""The one function of this experiment."""

import random


def shuffled(text: str) -> str:
    """The same characters in another order, from which nothing can be learnt but their counts."""
    return "".join(random.Random(text).sample(text, len(text)))

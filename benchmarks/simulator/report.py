"""Tables, as Markdown."""

from typing import List, Sequence


class Table:
    """Rows under headings. Numbers are printed with four digits."""

    def __init__(self, title: str, headings: Sequence[str]):
        self.title, self.headings = title, list(headings)
        self.rows: List[List[object]] = []

    def add(self, *cells) -> None:
        self.rows.append(list(cells))

    def __str__(self) -> str:
        lines = [f"{self.title}:", "", _line(self.headings), "|---|" + "---:|" * (len(self.headings) - 1)]
        return "\n".join([*lines, *(_line([_text(cell) for cell in row]) for row in self.rows)]) + "\n"


def percent(value: float) -> str:
    """Returns how far a quotient is from 1."""
    return f"{100 * (value - 1):+.2f} %"


def _text(cell) -> str:
    if isinstance(cell, float):
        return f"{cell:.3f}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"

"""Error against seconds as an SVG, one line for each implementation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bench.synthesizers.results import Summary

WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 210, 50, 60
TICKS = (1, 2, 5)
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#a0522d"),
    *("#333333", "#999999"),
)

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic axis from `low` to `high`, drawn from pixel `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """With a tenth of room, in logarithms, on both sides of the values."""
        low, high = math.log10(min(values)), math.log10(max(values))
        room = max(0.1 * (high - low), 0.05)
        return cls(10 ** (low - room), 10 ** (high + room), start, end)

    def pixel(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """The values 1, 2 and 5 times a power of ten that lie on the axis."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        every = [digit * 10.0**power for power in powers for digit in TICKS]
        return [value for value in every if self.low <= value <= self.high]


def svg(summaries: Iterable[Summary], title: str) -> str | None:
    """Mean distance of pairs (down) against seconds (across), both logarithmic.

    A point is labelled with its epsilon. None where no private run has both measures.
    """
    lines = _lines(summaries)
    points = [point for line in lines.values() for _, point in line]
    if not points:
        return None
    across = Axis.around([seconds for seconds, _ in points], LEFT, WIDTH - RIGHT)
    down = Axis.around([error for _, error in points], HEIGHT - BOTTOM, TOP)
    drawn = [*_frame(across, down, title)]
    for number, (name, line) in enumerate(lines.items()):
        drawn += _line(number, name, line, across, down)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            ' font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def _lines(summaries: Iterable[Summary]) -> Mapping[str, list[tuple[str, Point]]]:
    """For each implementation its epsilons in order, each with (seconds, distance of pairs)."""
    lines: dict[str, list[tuple[str, Point]]] = {}
    for each in summaries:
        seconds, error = each.means["seconds"], each.means["pairs"]
        if each.epsilon and seconds and error:
            lines.setdefault(each.implementation, []).append((each.epsilon, (seconds, error)))
    for line in lines.values():
        line.sort(key=lambda point: float(point[0]))
    return lines


def _frame(across: Axis, down: Axis, title: str) -> Iterator[str]:
    yield _text(LEFT, TOP - 20, title, size=15)
    yield _text((across.start + across.end) / 2, HEIGHT - 15, "seconds", anchor="middle")
    yield (
        f'<text transform="translate(18 {(down.start + down.end) / 2:.0f}) rotate(-90)"'
        ' text-anchor="middle">mean total variation distance of pairs</text>'
    )
    for value in across.ticks():
        x = across.pixel(value)
        yield _rule(x, down.start, x, down.end)
        yield _text(x, down.start + 18, f"{value:g}", anchor="middle")
    for value in down.ticks():
        y = down.pixel(value)
        yield _rule(across.start, y, across.end, y)
        yield _text(across.start - 8, y + 4, f"{value:g}", anchor="end")


def _line(
    number: int, name: str, line: Sequence[tuple[str, Point]], across: Axis, down: Axis
) -> Iterator[str]:
    colour = COLOURS[number % len(COLOURS)]
    places = [(across.pixel(seconds), down.pixel(error)) for _, (seconds, error) in line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for (epsilon, _), (x, y) in zip(line, places, strict=True):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
        yield _text(x + 7, y - 5, f"ε {epsilon}", size=10, colour=colour)
    y = TOP + 20 * number
    yield f'<circle cx="{WIDTH - RIGHT + 25}" cy="{y}" r="5" fill="{colour}"/>'
    yield _text(WIDTH - RIGHT + 38, y + 4, name)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = "#222222"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
        f' fill="{colour}">{escape(text)}</text>'
    )

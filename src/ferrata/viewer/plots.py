"""Plots as inline SVG: no script, no outside request, colours from the page's style sheet.

    line_plot       lines over updates, each with an optional interval band
    stacked_plot    shares of a whole over updates
    share_bar       one bar split into parts
    interval_plot   before and after with their intervals, small enough for a table cell

Every plot carries a <title> and a <desc>, and a tooltip at each point. Series are coloured by class (`s1` to `s8`,
defined in templates/report.css), so light and dark mode are the style sheet's business alone.
Units: pixels of the plot's own view box, which the page scales to fit.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

COLOURS = 8
"""How many series classes the style sheet defines; further series start over."""


class Series(NamedTuple):
    """One line: its name, its points (x, y), and an optional band of (x, low, high)."""

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()
    css: str = "s1"
    """Classes that colour it."""


class Part(NamedTuple):
    """One part of a whole."""

    name: str
    value: float
    css: str


class Look(NamedTuple):
    """What a plot says about itself, and how large it is."""

    title: str
    description: str
    width: int = 480
    height: int = 260
    percent: bool = False
    """Values are shares and printed as per cent."""
    y_range: tuple[float, float] | None = None
    """Ends of the y axis; None fits them to the values."""
    x_label: str = "update"
    markers: bool = False
    """Draw a dot at each point: for few, separately measured values."""


class Frame(NamedTuple):
    """The mapping from data to pixels; the margins leave room for the labels."""

    width: int
    height: int
    x_low: float
    x_high: float
    y_ticks: Sequence[float]
    """Labelled values of y, rising; the first and the last are the ends of the axis."""
    left: int = 50
    right: int = 14
    top: int = 12
    bottom: int = 40

    def x(self, value: float) -> float:
        """Pixels from the left."""
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return round(self.left + share * (self.width - self.left - self.right), 1)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        share = (value - self.y_ticks[0]) / (self.y_ticks[-1] - self.y_ticks[0])
        return round(self.height - self.bottom - share * (self.height - self.top - self.bottom), 1)


def series_class(index: int) -> str:
    """The class that colours the series at this position."""
    return f"s{index % COLOURS + 1}"


def line_plot(series: Sequence[Series], look: Look) -> Markup:
    """Lines over x; points that are not finite are left out.

    Returns the empty string when there is nothing to draw.
    """
    series = [one._replace(points=_finite(one.points)) for one in series]
    points = [point for one in series for point in one.points]
    if not points:
        return Markup("")
    ends = [(x, end) for one in series for x, low, high in one.band for end in (low, high)]
    frame = _frame([*points, *ends], look)
    body = [_axes(frame, look), *(_band(one, frame) for one in series), *(_line(one, frame, look) for one in series)]
    return _svg(Markup("").join(body), look)


def stacked_plot(
    steps: Sequence[float], parts: Mapping[str, Sequence[float]], look: Look, css: Sequence[str]
) -> Markup:
    """Bands stacked to 100% at each step, drawn from the bottom up.

    `parts` holds by name the value at each of the steps; each step is divided by its own sum. `css` is the class of
    each part, in the same order.
    """
    sums = [sum(values) or 1.0 for values in zip(*parts.values(), strict=True)]
    if not sums:
        return Markup("")
    look = look._replace(percent=True, y_range=(0.0, 1.0))
    frame = _frame([(step, 0.0) for step in steps], look)
    floor, bands = [0.0] * len(sums), [_axes(frame, look)]
    for (name, values), colour in zip(parts.items(), css, strict=True):
        ceiling = [low + value / total for low, value, total in zip(floor, values, sums, strict=True)]
        edge = list(zip(steps, floor, ceiling, strict=True))
        mean = sum(value / total for value, total in zip(values, sums, strict=True)) / len(sums)
        bands.append(_area(edge, frame, f"area {colour}", f"{name}: {mean:.1%} on average"))
        floor = ceiling
    return _svg(Markup("").join(bands), look)


def share_bar(parts: Sequence[Part], look: Look) -> Markup:
    """One horizontal bar, split in proportion to the parts' values."""
    total = sum(part.value for part in parts)
    if total <= 0.0:
        return Markup("")
    left, pieces = 0.0, []
    for part in parts:
        width = part.value / total * look.width
        pieces.append(
            Markup('<rect class="area {}" x="{:.1f}" y="0" width="{:.1f}" height="{}"><title>{}</title></rect>').format(
                part.css, left, width, look.height, f"{part.name}: {part.value / total:.1%}"
            )
        )
        left += width
    return _svg(Markup("").join(pieces), look)


def interval_plot(rows: Sequence[tuple[float, float, float, str]], look: Look) -> Markup:
    """Shares on a 0 to 1 scale with their intervals, one row each: (share, low, high, class)."""
    pitch = look.height / (len(rows) + 1)
    marks = [
        Markup('<line class="grid" x1="{x}" x2="{x}" y1="0" y2="{h}"/>').format(x=round(x), h=look.height)
        for x in (1, look.width / 2, look.width - 1)
    ]
    for index, (share, low, high, css) in enumerate(rows):
        y = round(pitch * (index + 1), 1)
        spread = Markup('<line class="whisker {}" x1="{}" x2="{}" y1="{}" y2="{}"/>')
        marks.append(spread.format(css, _cell(low, look), _cell(high, look), y, y))
        marks.append(Markup('<circle class="dot {}" cx="{}" cy="{}" r="4.5"/>').format(css, _cell(share, look), y))
    return _svg(Markup("").join(marks), look)


def nice_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round values (1, 2, 2.5 or 5 times a power of ten) that cover low to high in about so many steps."""
    largest = max(abs(low), abs(high))
    if not high - low > max(1e-9 * largest, 1e-200):
        # No spread, or none that a label could show.
        middle, half = (low + high) / 2, largest / 2 if largest > 1e-200 else 0.5
        low, high = middle - half, middle + half
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, 3 - math.floor(math.log10(step)))
    return [round(index * step, digits) for index in range(first, last + 1)]


def number(value: float, percent: bool = False) -> str:
    """A value as the plots and tables print it."""
    if not math.isfinite(value):
        return "–"
    if percent:
        digits = f"{100 * value:.3g}%"
    elif value and (abs(value) < 0.001 or abs(value) >= 1e5):
        digits = f"{value:.1e}"
    else:
        digits = f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return digits.replace("-", "−")


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(y)]


def _frame(points: Sequence[tuple[float, float]], look: Look) -> Frame:
    xs, ys = zip(*points, strict=True)
    low, high = look.y_range or (min(ys), max(ys))
    x_low, x_high = min(xs), max(xs)
    if x_low == x_high:  # a single update: put it in the middle
        x_low, x_high = x_low - 0.5, x_high + 0.5
    return Frame(look.width, look.height, x_low, x_high, nice_ticks(low, high))


def _axes(frame: Frame, look: Look) -> Markup:
    lines = []
    for tick in frame.y_ticks:
        y = frame.y(tick)
        lines.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
                frame.left, frame.width - frame.right, y, y
            )
        )
        label = number(tick, look.percent)
        lines.append(Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(frame.left - 7, y + 4, label))
    about = 6 if look.width > 600 else 3
    for tick in nice_ticks(frame.x_low, frame.x_high, about):
        if tick == int(tick) and frame.x_low <= tick <= frame.x_high:  # an update is a whole number
            text = Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>')
            lines.append(text.format(frame.x(tick), frame.height - frame.bottom + 17, f"{tick:.0f}"))
    middle = (frame.left + frame.width - frame.right) / 2
    label = Markup('<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text>')
    lines.append(label.format(middle, frame.height - 5, look.x_label))
    return Markup("").join(lines)


def _band(series: Series, frame: Frame) -> Markup:
    if not series.band:
        return Markup("")
    return _area(series.band, frame, f"band {series.css}", f"{series.name}: 95% interval")


def _area(edges: Sequence[tuple[float, float, float]], frame: Frame, css: str, tooltip: str) -> Markup:
    if len(edges) == 1:  # one column has no width of its own
        x, low, high = edges[0]
        edges = [(frame.x_low + 0.4, low, high), (frame.x_high - 0.4, low, high)] if frame.x_low < x else edges
    upper = [f"{frame.x(x)},{frame.y(high)}" for x, _, high in edges]
    lower = [f"{frame.x(x)},{frame.y(low)}" for x, low, _ in reversed(edges)]
    polygon = Markup('<polygon class="{}" points="{}"><title>{}</title></polygon>')
    return polygon.format(css, " ".join(upper + lower), tooltip)


def _line(series: Series, frame: Frame, look: Look) -> Markup:
    pixels = " ".join(f"{frame.x(x)},{frame.y(y)}" for x, y in series.points)
    line = Markup('<polyline class="line {}" points="{}"/>').format(series.css, pixels)
    radius = 3.5 if look.markers or len(series.points) == 1 else 0
    dot = Markup('<circle class="dot {}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>')
    hover = Markup('<circle class="hover" cx="{}" cy="{}" r="7"><title>{}</title></circle>')
    marks = []
    for x, y in series.points:
        tooltip = f"{series.name}, {look.x_label} {x:g}: {number(y, look.percent)}"
        if radius:
            marks.append(dot.format(series.css, frame.x(x), frame.y(y), radius, tooltip))
        else:
            marks.append(hover.format(frame.x(x), frame.y(y), tooltip))
    return line + Markup("").join(marks)


def _cell(share: float, look: Look) -> float:
    return round(5 + share * (look.width - 10), 1)


def _svg(body: Markup, look: Look) -> Markup:
    identity = f"plot-{zlib.crc32(f'{look.title} {look.width}'.encode()):08x}"  # the same report, the same bytes
    return Markup(
        '<svg viewBox="0 0 {w} {h}" role="img" aria-labelledby="{i}-title {i}-desc">'
        '<title id="{i}-title">{title}</title><desc id="{i}-desc">{desc}</desc>{body}</svg>'
    ).format(w=look.width, h=look.height, i=identity, title=look.title, desc=look.description, body=body)

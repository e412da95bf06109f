"""Draw numbers as bars, step by step, in one picture of two paths: a page may show hundreds."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

HEIGHT, WIDTH, BAR = 24, 3, 2  # of the picture, of a step, of the bar in it


def draw_sparkline(attempts: Sequence[int], failed: Sequence[int], label: str) -> Markup:
    """Return a picture of ended attempts, step by step, with the failed part of each bar at its
    foot. ``label`` names their subject."""
    most = max(attempts, default=0)
    said = f"{label}: {sum(attempts)} ended, {sum(failed)} did not complete, at most {most} a step"
    return Markup(  # noqa: S704  # numbers, and a label that is escaped
        f'<svg class="sparkline" viewBox="0 0 {len(attempts) * WIDTH} {HEIGHT}"'
        f' preserveAspectRatio="none" role="img" aria-label="{escape(said)}">'
        f"{_bars('ended', attempts, most)}{_bars('failed', failed, most)}</svg>"
    )


def _bars(kind: str, numbers: Sequence[int], most: int) -> str:
    """Return a bar for each number above zero; ``most`` is as high as the picture."""
    bars = {number: _bar(number, max(1, most)) for number in set(numbers) if number}
    drawn = [f"M{n * WIDTH} {HEIGHT}{bars[one]}" for n, one in enumerate(numbers) if one]
    return f'<path class="{kind}" d="{"".join(drawn)}"/>' if drawn else ""


def _bar(number: int, most: int) -> str:
    high = f"{HEIGHT * number / most:.1f}".removesuffix(".0")
    return f"v-{high}h{BAR}v{high}z"

"""Draws the picture of ``compare.py``: a panel for each work, a bar for each peer, and the C limit as a line; SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from statistics import median

WIDTH, LABELS, BAR, GAP, HEAD, FOOT = 760, 150, 16, 6, 46, 26  # pixels
OURS, OTHERS, LINE, TEXT = "#1f6f43", "#9aa7b1", "#b3401f", "#24292f"


@dataclass(frozen=True)
class Panel:
    """Rates of peers at one work, one list of rounds each; `limit` is a rate, or 0."""

    title: str
    rates: dict[str, list[float]]
    limit: float = 0.0


def draw(panels: list[Panel], footer: str) -> str:
    """Draw panels below each other, their bars by rate; whiskers go from the lowest round to the highest."""
    body: list[str] = []
    top = 8
    for panel in panels:
        rows = sorted(panel.rates.items(), key=lambda row: -median(row[1]))
        scale = (WIDTH - LABELS - 90) / max([panel.limit, *(max(rates) for _, rates in rows)])
        body.append(f'<text x="8" y="{top + 18}" font-weight="bold">{escape(panel.title)}</text>')
        y = top + HEAD - 14
        begin = y
        for name, rates in rows:
            middle, colour = median(rates), OURS if name.startswith("torchdali") else OTHERS
            x, low, high = LABELS + middle * scale, LABELS + min(rates) * scale, LABELS + max(rates) * scale
            line = y + BAR / 2
            body += [
                f'<text x="{LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="{LABELS}" y="{y}" width="{middle * scale:.1f}" height="{BAR}" fill="{colour}"/>',
                f'<path d="M{low:.1f} {line}H{high:.1f}M{low:.1f} {line - 4}v8M{high:.1f} {line - 4}v8" '
                f'stroke="{TEXT}" fill="none"/>',
                f'<text x="{max(x, high) + 6:.1f}" y="{y + 12}">{middle:,.{1 if middle < 100 else 0}f}</text>',
            ]
            y += BAR + GAP
        if panel.limit:
            x = LABELS + panel.limit * scale
            anchor = "start" if x < WIDTH / 2 else "end"
            body += [
                f'<path d="M{x:.1f} {begin - 6}V{y + 2}" stroke="{LINE}" stroke-dasharray="4 3"/>',
                f'<text x="{x:.1f}" y="{y + 14}" text-anchor="{anchor}" fill="{LINE}">the work in C alone: '
                f"{panel.limit:,.0f}</text>",
            ]
            y += BAR
        top = y + FOOT
    height = top + FOOT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="sans-serif" font-size="12" fill="{TEXT}">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            *body,
            f'<text x="8" y="{height - 12}" font-size="11">{escape(footer)}</text>',
            "</svg>\n",
        ]
    )

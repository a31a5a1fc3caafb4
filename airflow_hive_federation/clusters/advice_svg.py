"""Draws advice on copies as an SVG picture for light and dark pages. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from airflow_hive_federation.clusters.advice_report import summary_of, title_of
from airflow_hive_federation.clusters.advice_result import Advice, CopyAdvice
from airflow_hive_federation.progress.quantities import size

#: The number of copies that are drawn.
MAX_COPIES = 20
_WIDTH, _LEFT, _RIGHT = 960, 24, 190
_TOP, _ROW, _BAR = 112, 62, 13
_TITLE = 100

_STYLE = """
  text { font: 14px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
  .page { fill: #ffffff; } .head { font-size: 19px; font-weight: 600; }
  .small { font-size: 12px; fill: #59636e; }
  .saved { fill: #0969da; } .copied { fill: #bc4c00; } .line { stroke: #d1d9e0; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; } .page { fill: #0d1117; } .small { fill: #9198a1; }
    .saved { fill: #4493f8; } .copied { fill: #f0883e; } .line { stroke: #3d444d; }
  }
"""


def as_svg(advice: Advice) -> str:
    """Draw the bytes that each copy saves, and the bytes that it transfers."""
    return "\n".join(_elements(advice)) + "\n"


def _elements(advice: Advice) -> Iterator[str]:
    shown = advice.copies[:MAX_COPIES]
    more = len(advice.copies) - len(shown)
    height = _TOP + _ROW * max(len(shown), 1) + (24 if more else 0) + 16
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img">'
    )
    yield f"<title>Copies that save bytes between clusters</title><desc>{escape(summary_of(advice))}</desc>"
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="page" width="{_WIDTH}" height="{height}"/>'
    yield _text(_LEFT, 34, "Copies that save bytes between clusters", "head")
    yield _text(_LEFT, 58, summary_of(advice), "small")
    yield from _legend(advice)
    if not shown:
        yield _text(_LEFT, _TOP + 26, "No copy would save more bytes than it takes.")
    most = max((max(copy.saved_bytes, _taken(copy)) for copy in shown), default=1)
    for number, copy in enumerate(shown):
        yield from _row(copy, _TOP + number * _ROW, most)
    if more:
        yield _text(_LEFT, height - 18, f"and {more:,} more", "small")
    yield "</svg>"


def _legend(advice: Advice) -> Iterator[str]:
    entries = (
        ("saved", f"saved: {size(advice.saved_bytes)}"),
        ("copied", f"copied, at once and to keep current: {size(advice.copied_bytes)}"),
    )
    left = _LEFT
    for name, text in entries:
        yield f'<rect class="{name}" x="{left}" y="74" width="12" height="12" rx="2"/>'
        yield _text(left + 18, 85, text, "small")
        left += 200
    yield f'<line class="line" x1="{_LEFT}" y1="98" x2="{_WIDTH - _LEFT}" y2="98"/>'


def _row(copy: CopyAdvice, top: int, most: int) -> Iterator[str]:
    title = title_of(copy)
    shown = title if len(title) <= _TITLE else title[: _TITLE - 1] + "…"
    yield _text(_LEFT, top + 16, shown, title=title)
    for number, (name, size_bytes) in enumerate((("saved", copy.saved_bytes), ("copied", _taken(copy)))):
        # An invisible short bar would look like zero.
        width = max(round((_WIDTH - _LEFT - _RIGHT) * size_bytes / most), 2) if size_bytes else 0
        at = top + 23 + number * (_BAR + 2)
        yield f'<rect class="{name}" x="{_LEFT}" y="{at}" width="{width}" height="{_BAR}" rx="2"/>'
        rate = f" · {copy.rate:.1f} per byte" if name == "saved" else ""
        yield _text(_LEFT + width + 6, at + 11, f"{size(size_bytes)}{rate}", "small")


def _taken(copy: CopyAdvice) -> int:
    return copy.copied_bytes + copy.kept_bytes


def _text(left: int, base: int, text: str, name: str = "", *, title: str = "") -> str:
    full = f"<title>{_escaped(title)}</title>" if title and title != text else ""
    style = f' class="{name}"' if name else ""
    return f'<text{style} x="{left}" y="{base}">{full}{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    # XML forbids control characters, but names of partitions may contain some.
    return escape("".join(char if char.isprintable() else "?" for char in text))

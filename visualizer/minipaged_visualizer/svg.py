"""What every SVG of ours is made of: elements, text that stays text, a style, and hatches.

Whatever comes from a trace goes through `text`: nothing of it can end an element or name another
file. There are no scripts, no fonts from outside, and no links.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from minipaged_visualizer import palette
from minipaged_visualizer.safe_text import fit, safe

_STYLE = """
text { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 14px;
  fill: #16181d; white-space: pre; unicode-bidi: isolate; }
.page { fill: #ffffff; } .panel { fill: #e9ebef; } .free { fill: #f5f6f8; stroke: #8a909c; }
.cached { fill: #b4bac6; stroke: #545a66; } .line { stroke: #8a909c; fill: none; }
.quiet { fill: #545a66; } .bold { font-weight: bold; } .big { font-size: 20px; font-weight: bold; }
.small { font-size: 11px; } .middle { text-anchor: middle; } .end { text-anchor: end; }
.changed { fill: none; stroke: #c2185b; stroke-width: 3; } .sign { fill: #c2185b; }
.focus { fill: none; stroke: #16181d; stroke-width: 2; } .pending { font-style: italic; }
.heat { fill: #d55e00; stroke: #ffffff; } .empty { fill: #ffffff; fill-opacity: 0.7; }
.pill { fill: #16181d; } .on-pill { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #eceef2; } .page { fill: #14161b; } .panel { fill: #262a33; }
  .free { fill: #1d2027; stroke: #7d8594; } .cached { fill: #5b6372; stroke: #b0b6c2; }
  .line { stroke: #7d8594; } .quiet { fill: #b0b6c2; } .changed { stroke: #ff77b0; }
  .sign { fill: #ff77b0; } .focus { stroke: #eceef2; } .heat { fill: #ff8a3d; stroke: #14161b; }
  .empty { fill: #14161b; } .pill { fill: #eceef2; } .on-pill { fill: #14161b; }
}
"""
_HATCHES = (
    "",
    '<path d="M0 8L8 0" stroke="#000" stroke-width="1.5"/>',
    '<path d="M0 0L8 8" stroke="#000" stroke-width="1.5"/>',
    '<path d="M0 8L8 0M0 0L8 8" stroke="#000" stroke-width="1.5"/>',
)
CHARACTER = 8.43  # the width of one in pixels, at 14 px; the widest of the fonts named above


def document(width: float, height: float, body: Iterable[str], about: str) -> str:
    """Give a whole picture; `about` is what it shows, for those who hear it."""
    hatches = "".join(
        f'<pattern id="h{number}" width="8" height="8" patternUnits="userSpaceOnUse">{lines}'
        "</pattern>"
        for number, lines in enumerate(_HATCHES)
        if lines
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'role="img" direction="ltr"><title>{html.escape(safe(about))}</title>',
            f"<style>{_STYLE}</style><defs>{hatches}</defs>",
            rect(0, 0, width, height, "page"),
            *body,
            "</svg>\n",
        ]
    )


def rect(x: float, y: float, width: float, height: float, look: str, round_: float = 0) -> str:
    """Give a box; `look` is a class of the style, or a colour such as `#e69f00`."""
    paint = f'fill="{look}"' if look.startswith(("#", "url(")) else f'class="{look}"'
    corner = f' rx="{round_:g}"' if round_ else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{corner} {paint}/>'


def text(x: float, y: float, content: str, look: str = "", width: float | None = None) -> str:
    """Give one line of text, made harmless, and cut to `width` pixels where that is given."""
    shown = safe(content)
    if width is not None:
        shown = fit(shown, max(int(width / CHARACTER), 0))
    paint = f' class="{look}"' if look else ""
    return f'<text x="{x:g}" y="{y:g}"{paint}>{html.escape(shown)}</text>'


def owned(x: float, y: float, width: float, height: float, seq: int) -> str:
    """Give a box in a sequence's colour and hatch."""
    hatch = palette.hatch_number(seq)
    box = rect(x, y, width, height, palette.hue(seq)[0])
    return box + (rect(x, y, width, height, f"url(#h{hatch})") if hatch else "")


def letter(x: float, y: float, content: str, seq: int, size: float = 14) -> str:
    """Give letters on a sequence's colour; a rim of it keeps them legible on a hatch."""
    hue, ink = palette.hue(seq)
    rim = 7 if palette.hatch_number(seq) else 3
    return (
        f'<text x="{x:g}" y="{y:g}" class="middle bold" style="fill:{ink};stroke:{hue};'
        f'stroke-width:{rim};stroke-linejoin:round;paint-order:stroke;font-size:{size:g}px">{html.escape(safe(content))}</text>'
    )

"""Charts of a run, or of plain numbers: plotly figures that need no network and no engine.

    chart = memory_over_time(Trace.load("run.jsonl"))
    show(chart)                             # in a notebook, without a widget

Plotly is part of the extra `notebook` and is imported when the first chart is drawn. It reads tags
in texts: names and titles go through `label`, which takes their meaning away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from minipaged.errors import MinipagedError
from minipaged.memory.trace import Trace
from minipaged_visualizer.captions import letters, telling_name
from minipaged_visualizer.safe_text import fit, safe
from minipaged_visualizer.spans import PHASES, Span, request_spans
from minipaged_visualizer.usage import Usage, usage_over_time

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_SEQUENCES = 200
_LEAST_HEIGHT, _ROW = 450, 20  # pixels
_BLUE, _GREEN, _GRAY, _ORANGE, _PURPLE = "#0072b2", "#009e73", "#767676", "#d55e00", "#cc79a7"
_PHASE_LOOKS = {
    "waiting": ("#c6cad2", "."),
    "prefill": ("#e69f00", "/"),
    "decode": ("#56b4e9", ""),
    "preempted": ("#d55e00", "x"),
}
_SERIES = ((_BLUE, "circle"), (_ORANGE, "square"), (_GREEN, "diamond"), (_PURPLE, "x"))
_PATTERNS = ("", "/", "x", ".", "\\", "-", "+")
_NEUTRAL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "＄", "%": "％"})


def memory_over_time(trace: Trace) -> go.Figure:
    """Draw used, shared, cached and wasted blocks over the steps.

    Raises:
        IntegrityError: The trace contradicts itself.
    """
    points = usage_over_time(trace)
    figure = _figure(f"Memory over time: {_about(trace)}", "step", "blocks")
    for name, color, dash in (
        ("used", _BLUE, "solid"),
        ("shared", _GREEN, "dash"),
        ("cached", _GRAY, "dot"),
        ("wasted", _ORANGE, "dashdot"),
    ):
        _add_line(figure, points, name, color, dash)
    figure.update_yaxes(range=[0, trace.header.num_blocks * 1.05])
    return figure


def sharing_saved(trace: Trace) -> go.Figure:
    """Draw the blocks that sharing saved over the steps, on top of those that were used.

    Raises:
        IntegrityError: The trace contradicts itself.
    """
    points = usage_over_time(trace)
    figure = _figure(f"What sharing saved: {_about(trace)}", "step", "blocks")
    for name, words, color, pattern in (
        ("used", "used", _BLUE, ""),
        ("saved", "saved: what copies would take", _GREEN, "/"),
    ):
        figure.add_scatter(
            x=[point.step for point in points],
            y=[getattr(point, name) for point in points],
            name=words,
            stackgroup="blocks",
            line={"color": color, "shape": "hv"},
            fillpattern={"shape": pattern},
        )
    return figure


def requests_gantt(trace: Trace) -> go.Figure:
    """Draw when each sequence waited, was read (prefill), wrote (decode), or was preempted.

    Of many sequences the first `MAX_SEQUENCES` are drawn; the title tells.
    """
    spans = request_spans(trace.all_steps())
    seqs = sorted({span.seq for span in spans})
    shown = seqs[:MAX_SEQUENCES]
    note = f" (the first {len(shown)} of {len(seqs)} sequences)" if len(seqs) > len(shown) else ""
    figure = _figure(f"Requests: {_about(trace)}{note}", "step", "")
    rows = {seq: row for row, seq in enumerate(shown)}
    for phase in PHASES:
        _add_spans(figure, phase, [s for s in spans if s.phase == phase and s.seq in rows], rows)
    height = max(_LEAST_HEIGHT, _ROW * len(rows) + 160)
    figure.update_layout(barmode="overlay", bargap=0.25, hovermode="closest", height=height)
    figure.update_yaxes(
        autorange="reversed",
        tickvals=list(rows.values()),
        ticktext=[label(_row_name(seq, spans)) for seq in shown],
    )
    return figure


def waste_by_system(waste: Mapping[str, Mapping[str, float]], title: str = "") -> go.Figure:
    """Draw what became of memory in several systems: a bar each, stacked by kind, in percent.

    `waste` is {system: {kind: share of memory from 0 to 1}}.
    """
    figure = _figure(title or "What became of KV memory", "", "share of memory in percent")
    kinds = list(dict.fromkeys(kind for shares in waste.values() for kind in shares))
    for number, kind in enumerate(kinds):
        figure.add_bar(
            x=[label(system) for system in waste],
            y=[100 * shares.get(kind, 0) for shares in waste.values()],
            name=label(kind),
            marker={
                "color": _SERIES[number % len(_SERIES)][0],
                "pattern": {"shape": _PATTERNS[number % len(_PATTERNS)]},
            },
        )
    figure.update_layout(barmode="stack")
    figure.update_yaxes(range=[0, 100])
    return figure


def block_size_sweep(
    block_sizes: Sequence[int],
    series: Mapping[str, Sequence[float]],
    y_title: str,
    title: str = "",
) -> go.Figure:
    """Draw one line for each series over block sizes, the latter on a logarithmic axis.

    Raises:
        MinipagedError: A series has not as many numbers as there are block sizes.
    """
    figure = _figure(title or "Block size", "tokens in a block", y_title)
    for number, (name, values) in enumerate(series.items()):
        if len(values) != len(block_sizes):
            raise MinipagedError(f"{name}: {len(values)} values for {len(block_sizes)} block sizes")
        color, symbol = _SERIES[number % len(_SERIES)]
        figure.add_scatter(
            x=list(block_sizes),
            y=list(values),
            name=label(name),
            mode="lines+markers",
            line={"color": color},
            marker={"symbol": symbol, "size": 9},
        )
    figure.update_xaxes(
        type="log", tickvals=list(block_sizes), ticktext=list(map(str, block_sizes))
    )
    return figure


def show(figure: go.Figure) -> None:
    """Show a chart in a notebook: as data that JupyterLab draws, with nothing from outside."""
    figure.show(renderer="plotly_mimetype")


def label(text: str, width: int = 60) -> str:
    r"""Give a text that plotly shows as it is: no tag, no template and no formula can be in it.

    >>> label("<b>$x$</b>\x1b")
    '&lt;b&gt;＄x＄&lt;/b&gt;␛'
    """
    return fit(safe(text), width).translate(_NEUTRAL)


# --- inside ---------------------------------------------------------------------------------------


def _figure(title: str, x_title: str, y_title: str) -> go.Figure:
    figure = _graph_objects().Figure()
    figure.update_layout(
        title={"text": label(title, 120)},
        template="plotly_white",
        hovermode="x unified",
        legend={"orientation": "h", "yanchor": "top", "y": -0.25},  # below the title of the axis
        margin={"t": 60, "r": 20},
        font={"size": 14, "color": "#16181d"},
    )
    figure.update_xaxes(title={"text": label(x_title)})
    figure.update_yaxes(title={"text": label(y_title)})
    return figure


def _graph_objects() -> Any:
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise MinipagedError("charts need plotly: pip install 'minipaged[notebook]'") from None
    return go


def _about(trace: Trace) -> str:
    header = trace.header
    name = str(header.model.get("name", "")) or header.title or "a run"
    return f"{name}, {header.num_blocks} blocks of {header.block_size} tokens"


def _add_line(figure: go.Figure, points: Sequence[Usage], name: str, color: str, dash: str) -> None:
    figure.add_scatter(
        x=[point.step for point in points],
        y=[getattr(point, name) for point in points],
        name=name,
        mode="lines",
        line={"color": color, "dash": dash, "shape": "hv", "width": 2.5},
    )


def _add_spans(
    figure: go.Figure, phase: str, spans: Sequence[Span], rows: Mapping[int, int]
) -> None:
    color, pattern = _PHASE_LOOKS[phase]
    figure.add_bar(
        orientation="h",
        y=[rows[span.seq] for span in spans],
        base=[span.start for span in spans],
        x=[span.stop - span.start for span in spans],
        name=phase,
        marker={"color": color, "pattern": {"shape": pattern}, "line": {"color": "#16181d"}},
        hovertext=[f"{phase}: steps {span.start} to {span.stop - 1}" for span in spans],
        hoverinfo="text",
    )


def _row_name(seq: int, spans: Sequence[Span]) -> str:
    name = next(span.name for span in spans if span.seq == seq)
    return f"{letters(seq)}  {fit(safe(telling_name(name)), 24)}".rstrip()

"""`minipaged generate`: text on standard output as it comes, or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from minipaged.engine.llm_engine import Output
from minipaged.engine.outputs import BeamSearchOutput, RequestOutput
from minipaged.engine.sampling_params import BeamSearchParams, SamplingParams
from minipaged.llm import LLM


def generate(
    llm: LLM, prompts: Sequence[str], params: SamplingParams | BeamSearchParams, as_json: bool
) -> None:
    """Run the prompts and print what comes out; if it is interrupted, what there is by then.

    A single text streams; several are printed when all are done.

    Raises:
        RequestRefusedError: A prompt can never run here. None is started.
        KeyboardInterrupt: Ctrl-C, after the blocks were freed and the rest was printed.
    """
    streams = len(prompts) == 1 and not as_json and _is_single(params)
    if streams and isinstance(params, SamplingParams):
        _stream(llm, prompts[0], params)
        return
    requests = [llm.engine.request(i) for i in llm.add_requests(prompts, params)]
    try:
        while llm.has_unfinished_requests():
            llm.step()
    finally:
        llm.engine.abort_all()
        outputs = [request.output() for request in requests]
        _write(_as_json(llm, outputs) if as_json else "\n".join(map(_as_text, outputs)))


def _is_single(params: SamplingParams | BeamSearchParams) -> bool:
    return isinstance(params, SamplingParams) and params.n == 1


def _stream(llm: LLM, prompt: str, params: SamplingParams) -> None:
    """Print a text as it grows; on a terminal behind its prompt."""
    pieces = llm.stream(prompt, params)
    if sys.stdout.isatty():
        _write(prompt, end="")
    try:
        for piece in pieces:
            _write(piece, end="")
    finally:
        _write("")


def _as_text(output: Output) -> str:
    """Give a request's texts under a line with its prompt."""
    if isinstance(output, RequestOutput):
        texts = [f"[{sample.index}] {sample.text}" for sample in output.outputs]
    else:
        texts = [f"[{beam.score:.3f}] {beam.text}" for beam in output.sequences]
    return "\n".join([f"--- {output.prompt}", *texts])


def _as_json(llm: LLM, outputs: Sequence[Output]) -> str:
    document: dict[str, Any] = {"model": llm.model_name, "requests": []}
    for output in outputs:
        row = asdict(output)
        row["kind"] = "beam_search" if isinstance(output, BeamSearchOutput) else "sampling"
        document["requests"].append(row)
    return json.dumps(document, indent=2)


def _write(text: str, end: str = "\n") -> None:
    """Print at once. On a terminal a model's control characters are left out."""
    if sys.stdout.isatty():
        text = "".join(c for c in text if c.isprintable() or c in "\n\t")
    sys.stdout.write(text + end)
    sys.stdout.flush()

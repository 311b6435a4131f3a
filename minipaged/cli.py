"""The `minipaged` command: reads arguments, calls a file of `commands/`, catches errors.

Standard output carries results, standard error everything else. Exit status: 0 done, 1 failed, 2
wrong usage, 130 interrupted. Torch is imported by the commands that need it, when they need it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from minipaged import __version__
from minipaged.engine.config import EngineConfig
from minipaged.engine.sampling_params import BeamSearchParams, SamplingParams
from minipaged.engine.uninterrupted import uninterrupted
from minipaged.errors import ConfigError, MinipagedError
from minipaged.models.catalog import DEFAULT_MODEL

INTERRUPTED = 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
models_app = typer.Typer(help="Show what models there are and where, or fetch one.")
app.add_typer(models_app, name="models")

Prompts = Annotated[list[str], typer.Argument(help="One text or several.", show_default=False)]
OptionalPrompts = Annotated[
    Optional[list[str]], typer.Argument(metavar="[PROMPT]...", show_default=False)
]
Model = Annotated[str, typer.Option(help="Catalog name, Hugging Face id, folder or .gguf file.")]
Samples = Annotated[int, typer.Option("-n", help="Samples of each prompt; they share its blocks.")]
MaxTokens = Annotated[int, typer.Option(help="The most tokens to generate.")]
Temperature = Annotated[float, typer.Option(help="0 takes the likeliest token.")]
TopP = Annotated[float, typer.Option(help="Draw from the likeliest tokens up to this share.")]
Seed = Annotated[int, typer.Option(help="The same seed draws the same tokens.")]
Beam = Annotated[Optional[int], typer.Option(help="Search with so many beams, don't sample.")]
BlockSize = Annotated[int, typer.Option(help="Tokens in a block.")]
NumBlocks = Annotated[Optional[int], typer.Option(help="Blocks in the pool.")]
TraceFile = Annotated[Optional[Path], typer.Option("--trace", help="Write every event there.")]
LabRequests = Annotated[int, typer.Option(help="Requests of each simulation.", min=1)]
LabSeed = Annotated[int, typer.Option(help="The same seed draws the same lengths.")]
Page = Annotated[Optional[Path], typer.Option(help="Draw charts there (needs plotly).")]
Deep = Annotated[bool, typer.Option("--deep", help="Record attention over blocks too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]


@app.callback(invoke_without_command=True)
def _app(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """See PagedAttention work: a paged KV cache under a real language model."""
    if version:
        print(__version__)
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def generate(
    prompts: Prompts,
    model: Model = DEFAULT_MODEL,
    n: Samples = 1,
    max_tokens: MaxTokens = 64,
    temperature: Temperature = 0.8,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    beam: Beam = None,
    block_size: BlockSize = 16,
    num_blocks: NumBlocks = None,
    trace: TraceFile = None,
    deep: Deep = False,
    as_json: AsJson = False,
) -> None:
    """Continue a text: stream it, or print one JSON document."""
    params = _params(n, max_tokens, temperature, top_p, seed, beam)
    config: dict[str, Any] = {"block_size": block_size, "num_blocks": num_blocks, "seed": seed}
    EngineConfig(**config)  # what is wrong is told before torch loads
    if deep and trace is None:
        raise ConfigError("--deep tells what goes into a trace: give --trace FILE too")
    with uninterrupted():  # libraries swallow what is raised while they are imported
        from minipaged.commands.generate import generate
        from minipaged.engine.deep_trace import DeepTrace
        from minipaged.llm import LLM

    with LLM(model, trace=DeepTrace(path=trace) if deep else trace or False, **config) as llm:
        generate(llm, prompts, params, as_json)


@app.command()
def watch(
    prompts: OptionalPrompts = None,
    model: Model = DEFAULT_MODEL,
    n: Samples = 1,
    max_tokens: MaxTokens = 32,
    temperature: Temperature = 0.8,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    beam: Beam = None,
    block_size: BlockSize = 4,
    num_blocks: NumBlocks = None,
    trace: TraceFile = None,
    deep: Deep = False,
    speed: Annotated[float, typer.Option(help="Steps a second.")] = 4.0,
    replay: Annotated[Optional[Path], typer.Option(help="Play a trace file.")] = None,
    follow: Annotated[Optional[Path], typer.Option(help="Play a trace that still grows.")] = None,
    projector: Annotated[bool, typer.Option("--projector", help="Large type: back row.")] = False,
) -> None:
    """Watch the KV cache while a model writes. Without a prompt: a scene that shows all."""
    from minipaged.commands.watch import watch_file, watch_live

    if replay or follow:
        watch_file(replay, follow, speed, projector)
        return
    params = _params(n, max_tokens, temperature, top_p, seed, beam)
    config = EngineConfig(block_size=block_size, num_blocks=num_blocks, seed=seed)
    watch_live(model, prompts or [], params, config, trace, speed, projector, deep)


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """Show what models there are and where, or fetch one."""
    if context.invoked_subcommand is None:
        from minipaged.commands.models import show_models

        show_models()


@models_app.command("fetch")
def fetch(name: str) -> None:
    """Fetch a model, so that it is there without a network."""
    from minipaged.commands.models import fetch_model

    fetch_model(name)


@app.command()
def check(file: Path) -> None:
    """Replay a trace file and report the first broken invariant."""
    from minipaged.memory.integrity import check_trace

    num_steps, num_events = check_trace(file)
    print(f"{file}: {num_steps} steps, {num_events} events, every invariant holds")


@app.command()
def export(
    trace: Path,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    format_name: Annotated[
        Optional[str],
        typer.Option("--format", help="html, perfetto, svg, gantt or charts; else by its ending."),
    ] = None,
    step: Annotated[Optional[int], typer.Option(help="For svg: the step to show.")] = None,
    event: Annotated[Optional[int], typer.Option(help="So many of its events.")] = None,
    beside: Annotated[
        Optional[Path], typer.Option(help="For html: another trace, with one scrubber for both.")
    ] = None,
) -> None:
    """Turn a trace into a page, a picture, charts, or a timeline for Perfetto.

    A recording of a kernel, e.g. paged_decode, which is built in, becomes a page, too.
    """
    from minipaged.commands.export import export

    export(trace, output, format_name, step, event, beside)


@app.command()
def bench(
    model: Model = DEFAULT_MODEL,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "bfloat16",
    against: Annotated[Optional[str], typer.Option(help="transformers")] = None,
    rounds: Annotated[int, typer.Option(help="Every contender in turn, so many times.")] = 3,
    requests: Annotated[int, typer.Option(help="Prompts of 20-200 tokens.")] = 32,
    new_tokens: Annotated[int, typer.Option(help="New tokens for each of them.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Measure tokens a second, where the time goes, and what tracing costs."""
    from minipaged.commands.bench import bench

    options = {"num_requests": requests, "new_tokens": new_tokens}
    bench(model, dtype, against, rounds, options, as_json)


@app.command()
def plan(
    model: Annotated[str, typer.Option(help="A known model, or a folder with a config.json.")],
    gpu: Annotated[str, typer.Option(help="A known GPU, such as a100-80g.")],
    max_len: Annotated[Optional[int], typer.Option(help="The longest text, in tokens.")] = None,
    mean_len: Annotated[int, typer.Option(help="A text's tokens on average, with prompt.")] = 512,
    mean_prompt: Annotated[Optional[int], typer.Option(help="Of these, the prompt's.")] = None,
    block_size: BlockSize = 16,
    num_gpus: Annotated[int, typer.Option(help="GPUs that share the model.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Work out what fits on a GPU: tokens, blocks, requests, and waste by kind."""
    from minipaged.commands.plan import show_plan
    from minipaged.lab.hardware import find_gpu
    from minipaged.lab.models import find_model
    from minipaged.lab.planner import plan

    sizes = plan(
        find_model(model),
        find_gpu(gpu),
        mean_len=mean_len,
        max_len=max_len,
        mean_prompt=mean_prompt,
        block_size=block_size,
        num_gpus=num_gpus,
    )
    show_plan(sizes, as_json)


@app.command()
def zoo(
    name: Annotated[Optional[str], typer.Argument(help="A bug.", show_default=False)] = None,
    run_all: Annotated[bool, typer.Option("--all", help="Hunt every bug.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same random load.")] = 0,
    trace: Annotated[Optional[Path], typer.Option(help="Write a bug's run there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Meet the faults that real engines had: switch one on, and see what catches it."""
    from minipaged.commands.zoo import show_zoo

    show_zoo(name, run_all, seed, trace, as_json)


@app.command()
def slabs(
    policy: Annotated[str, typer.Option(help="What a slab reserves: max, pow2, oracle.")] = "max",
    num_blocks: Annotated[int, typer.Option(help="Blocks in the pool.")] = 28,
    block_size: BlockSize = 4,
    requests: Annotated[int, typer.Option(help="Two come in each step.")] = 10,
    seed: LabSeed = 0,
    output: Annotated[
        Optional[Path], typer.Option("-o", "--output", help="Write a page that plays both.")
    ] = None,
) -> None:
    """Run the same requests in contiguous and in paged memory, side by side."""
    from minipaged.commands.slabs import show_slabs
    from minipaged.lab.side_by_side import Scene

    show_slabs(Scene(policy, num_blocks, block_size, requests, seed), output)


@app.command()
def paper(
    names: Annotated[
        Optional[list[str]],
        typer.Argument(help="fig1, fig2, fig13, ... or all.", show_default=False),
    ] = None,
    requests: LabRequests = 1000,
    seed: LabSeed = 0,
    html: Page = None,
    png: Annotated[Optional[Path], typer.Option(help="Write each chart into a folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild figures of the PagedAttention paper: reported beside simulated."""
    from minipaged.commands.paper import show_paper
    from minipaged.lab.paper.study import Scale

    show_paper(names or ["all"], Scale(requests, seed), as_json, html, png)


@app.command()
def sweep(
    block_size: Annotated[str, typer.Option(help="Sizes to try.")] = "1,2,4,8,16,32,64,128",
    workload: Annotated[str, typer.Option(help="sharegpt, alpaca or a file.")] = "sharegpt",
    requests: LabRequests = 1000,
    seed: LabSeed = 0,
    n: Samples = 1,
    html: Page = None,
    as_json: AsJson = False,
) -> None:
    """Try block sizes on a workload: waste against overhead, and the size to take."""
    from minipaged.commands.sweep import parse_sizes, show_sweep
    from minipaged.lab.loads import Load

    load = Load(workload, requests, seed, width=n)
    show_sweep(parse_sizes(block_size), load, as_json, html)


@app.command()
def compare(
    what: Annotated[
        str, typer.Argument(help="preemption, eviction, prefix-cache, chunked-prefill, batching.")
    ],
    requests: LabRequests = 300,
    seed: LabSeed = 0,
    html: Page = None,
    as_json: AsJson = False,
) -> None:
    """Compare two ways to do the same under the same load."""
    from minipaged.commands.compare import show_comparison

    show_comparison(what, requests, seed, as_json, html)


@app.command()
def learn(
    folder: Annotated[
        Optional[Path], typer.Argument(help="Yours, made if need be.", show_default=False)
    ] = None,
    reset: Annotated[
        Optional[int], typer.Option(help="Bring this chapter back; yours is kept in backup/.")
    ] = None,
    lab: Annotated[bool, typer.Option(help="Open JupyterLab, or only copy.")] = True,
) -> int:
    """Open the tutorials in a folder of your own: ./minipaged-tutorials, unless you name one."""
    from minipaged.commands.learn import learn as open_tutorials

    return open_tutorials(folder, reset, lab and reset is None)


@app.command()
def exercise(
    number: Annotated[
        Optional[str], typer.Argument(help="3.1, or none for a list.", show_default=False)
    ] = None,
    hint: Annotated[Optional[int], typer.Option(help="Show hint 1, 2 or 3.")] = None,
    solution: Annotated[bool, typer.Option("--solution", help="Show the solution.")] = False,
    file: Annotated[Optional[Path], typer.Option(help="Check this file, not the folder's.")] = None,
    trace: Annotated[Optional[Path], typer.Option(help="Write a counterexample there.")] = None,
) -> int:
    """Check an exercise, or list them all; exit status 1 until it is solved."""
    from minipaged.commands import exercise as exercises

    if number is None:
        if hint is not None or solution or file or trace:
            raise ConfigError("name the exercise, as in: minipaged exercise 3.1 --hint 1")
        exercises.show_exercises()
    elif hint is not None:
        exercises.show_hint(number, hint)
    elif solution:
        exercises.show_solution(number)
    else:
        return 0 if exercises.check_exercise(number, file, trace) else 1
    return 0


def main() -> None:
    """Run the command line and exit with its status."""
    _prepare_streams()
    _obey_signals()
    status = _run()
    if status == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one while Python ends tells no more
        _tell("interrupted")
    if threading.active_count() > 1:
        # The view was left while a step was computed: a thread inside torch can't be told to stop.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    raise SystemExit(status)


def _prepare_streams() -> None:
    """Print what an encoding lacks as `?`; do without standard error where it is closed."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (it lives as long as the process)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _obey_signals() -> None:
    """Take a request to end as Ctrl-C, so that the terminal is restored and the trace complete."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one
            signal.signal(number, signal.default_int_handler)


def _run() -> int:
    if sys.stdout is None:
        _tell("standard output is closed")
        return 1
    try:
        status = app(standalone_mode=False) or 0
        sys.stdout.flush()
        return status
    except typer.Exit as e:
        return e.exit_code
    except MinipagedError as e:
        _tell(str(e))
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as e:
        _drop_output()
        if not isinstance(e, BrokenPipeError):  # who reads no further needs no message
            is_missing = isinstance(e, FileNotFoundError)  # as is a current folder that was removed
            nameless = "the current folder" if is_missing else "standard output"
            _tell(f"{e.filename or nameless}: {e.strerror or e}")
        return 1
    except Exception as e:
        return _usage_error(e)


def _drop_output() -> None:
    """Let what is still buffered go nowhere, where the end of the process would write it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(message: str) -> None:
    """Print one line on standard error. A stranger's file may be quoted in it."""
    line = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
    print(f"minipaged: {line}", file=sys.stderr)


def _params(
    n: int, max_tokens: int, temperature: float, top_p: float, seed: int, beam: int | None
) -> SamplingParams | BeamSearchParams:
    if beam is not None:
        if n != 1:
            raise ConfigError(f"-n {n} is for sampling: a search returns all of its {beam} beams")
        return BeamSearchParams(beam_width=beam, max_tokens=max_tokens)
    return SamplingParams(
        n=n, max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed
    )


def _usage_error(error: Exception) -> int:
    """Print what is wrong with the arguments; anything else is a bug of ours and goes on."""
    message = getattr(error, "format_message", None)
    if message is None:
        raise error
    _tell(f"{message()} (see minipaged --help)")
    return int(getattr(error, "exit_code", 2))


if __name__ == "__main__":
    main()

"""One contender in a process of its own; prints its figures as one JSON line.

python -m minipaged.bench.worker CONTENDER MODEL DTYPE REPEATS WORKLOAD
"""

from __future__ import annotations

import json
import sys
from typing import Any

from minipaged.bench.workload import Workload, make_workload
from minipaged.errors import MinipagedError
from minipaged.models.catalog import resolve
from minipaged.models.model_files import ModelFiles

CONTENDERS = ("minipaged", "generate", "generate_batch")


def run(
    contender: str, files: ModelFiles, dtype: str, repeats: int, workload: Workload
) -> dict[str, Any]:
    """Give a contender's seconds for each repeat, and what else it tells."""
    if contender == "minipaged":
        from minipaged.bench.ours import make_bench, measure

        bench = make_bench(files, dtype, workload)
        return {**measure(bench, workload, repeats), "peak_bytes": peak_bytes()}
    from minipaged.bench import peers

    model = peers.load_peer(files, dtype)
    make = peers.padded_generate if contender == "generate" else peers.continuous_generate
    timed = make(model)
    timed(workload)  # warms up
    seconds = [timed(workload) for _ in range(repeats)]
    return {"seconds": seconds, "peak_bytes": peak_bytes()}


def peak_bytes() -> int | None:
    """Give the most memory that this process has had; None where the system doesn't tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    """Run what the arguments ask for."""
    contender, name, dtype, repeats, options = sys.argv[1:]
    try:
        files = resolve(name, lambda line: None)
        workload = make_workload(files.config.vocab_size, **json.loads(options))
        figures = run(contender, files, dtype, int(repeats), workload)
    except MinipagedError as e:
        raise SystemExit(str(e)) from None
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

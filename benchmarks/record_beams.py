"""Record how a real model's beam searches go: `python benchmarks/record_beams.py`.

Prompts are short instructions, as in Alpaca, given to the model as they are. Every search goes on
for `NUM_TOKENS` tokens, whether the text has ended or not: the lengths of a workload decide when it
ends. Only the trees are kept: see `minipaged/lab/beams.py`. It takes some minutes on two cores.
"""

from __future__ import annotations

import sys
import time

from minipaged import LLM
from minipaged.engine.sampling_params import BeamSearchParams
from minipaged.lab.beams import RECORDED, beam_trees, write_trees

MODEL = "smollm2-q4"
WIDTHS = (2, 4, 6)
NUM_TOKENS = 192
PROMPTS = (
    "Give three tips for staying healthy in winter.",
    "Explain to a child why the sky is blue.",
    "Write a short poem about a river that meets the sea.",
    "List five animals that live in the desert and say how they find water.",
    "Describe how a bill becomes a law.",
    "Rewrite this sentence in the passive voice: The cook prepared the meal.",
    "What are the advantages of riding a bicycle to work?",
    "Suggest a name for a bakery and explain your choice.",
    "Compare a novel with a short story.",
    "Write an email in which you ask a colleague to move a meeting to Thursday.",
    "How do plants turn sunlight into food?",
    "Summarize the story of the tortoise and the hare in two sentences.",
    "Create a shopping list for a vegetable soup for four people.",
    "Name the planets of the solar system in order of their size.",
    "What should a tourist see in Rome in one day?",
    "Tell me how to change the tyre of a car, step by step.",
)


def main() -> None:
    """Search with every width, and write what came of it."""
    trees = {}
    for width in WIDTHS:
        began = time.perf_counter()
        num_blocks = len(PROMPTS) * width * (NUM_TOKENS + 64) // 16
        with LLM(
            MODEL,
            dtype="bfloat16",
            num_blocks=num_blocks,
            max_num_seqs=len(PROMPTS) * width,
            trace=True,
        ) as llm:
            # The last token ends the search and has no row: nobody goes on from it.
            params = BeamSearchParams(beam_width=width, max_tokens=NUM_TOKENS + 1, ignore_eos=True)
            llm.beam_search(list(PROMPTS), params)
            trees[width] = beam_trees(e for step in llm.trace.steps for e in step.events)
        seconds = time.perf_counter() - began
        sys.stderr.write(f"{width} beams: {len(trees[width])} trees, {seconds:.0f} s\n")
    about = {"model": MODEL, "recorded_by": "benchmarks/record_beams.py"}
    write_trees(RECORDED, about, trees)


if __name__ == "__main__":
    main()

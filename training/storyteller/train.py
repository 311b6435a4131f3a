"""Train the storyteller: `python -m training.storyteller.train FOLDER`.

Writes FOLDER/model (what ships), FOLDER/curve.jsonl (the learning curve) and FOLDER/checkpoint.pt.
Run again after an interruption, it goes on from the checkpoint and ends with the same weights.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tqdm import tqdm

from training.storyteller import checkpoint
from training.storyteller.documents import Exchange, held_out
from training.storyteller.scoring import score
from training.storyteller.tokenizer import train_tokenizer
from training.storyteller.trainer import Recipe, Trainer

if TYPE_CHECKING:
    import tokenizers

_WATCHED = 100  # held-out stories for the learning curve; evaluate.py takes other ones


@dataclass
class Run:
    """One training run in its folder."""

    trainer: Trainer
    folder: Path
    watched: list[Exchange]
    every: int  # steps between two points of the curve, and two checkpoints

    def until(self, stop: int) -> None:
        """Train until `stop` steps are done."""
        trainer, seconds = self.trainer, 0.0
        bar = tqdm(total=trainer.recipe.steps, initial=trainer.step, unit="step", smoothing=0.05)
        with bar:
            while trainer.step < stop:
                start = time.perf_counter()
                loss = trainer.advance()
                seconds += time.perf_counter() - start
                bar.update()
                if trainer.step % self.every == 0 or trainer.step == stop:
                    excess = self.note(loss, seconds)
                    bar.set_postfix(loss=f"{loss:.3f}", excess=f"{excess:.4f}")
                    seconds = 0.0

    def note(self, loss: float, seconds: float) -> float:
        """Add a point to the curve, save the state, and give the excess."""
        trainer = self.trainer
        result = score(trainer.model, trainer.tokenizer, self.watched)
        point = {
            "step": trainer.step,
            "tokens": sum(map(trainer.recipe.tokens, range(trainer.step))),
            "loss": round(loss, 4),
            "excess": round(result.excess, 5),
            "seconds": round(seconds, 1),  # of training since the point before
        }
        with (self.folder / "curve.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")
        trainer.save(self.folder / "checkpoint.pt")
        return result.excess


def prepare(recipe: Recipe, folder: Path, every: int, watched: int = _WATCHED) -> Run:
    """Begin a run, or go on with the one that was interrupted in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(recipe, _tokenizer(folder / "tokenizer.json", recipe.shape.vocab_size))
    saved, curve = folder / "checkpoint.pt", folder / "curve.jsonl"
    if saved.exists():
        trainer.load(saved)
    lines = curve.read_text(encoding="utf-8").splitlines() if curve.exists() else []
    kept = [line for line in lines if json.loads(line)["step"] <= trainer.step]
    curve.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    return Run(trainer, folder, list(held_out(watched, "watched")), every)


def _tokenizer(path: Path, vocab_size: int) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer

    if not path.exists():
        train_tokenizer(vocab_size).save(str(path))
    return Tokenizer.from_file(str(path))


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description="Train the storyteller.")
    parser.add_argument("folder", type=Path, help="where the run is kept; made if need be")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--learning-rate", type=float, default=Recipe.learning_rate)
    parser.add_argument("--tokens-per-step", type=int, default=Recipe.tokens_per_step)
    parser.add_argument("--fp32", action="store_true", help="for a CPU without fast bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=int, default=250, help="steps between two checkpoints")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    recipe = Recipe(
        steps=args.steps,
        seed=args.seed,
        tokens_per_step=args.tokens_per_step,
        learning_rate=args.learning_rate,
        bf16=not args.fp32,
    )
    run = prepare(recipe, args.folder, args.every)
    run.until(recipe.steps)
    checkpoint.save(args.folder / "model", run.trainer.model, run.trainer.tokenizer)


if __name__ == "__main__":
    main()

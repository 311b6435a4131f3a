"""Training, a step at a time: a pure function of the recipe, wherever it was stopped and resumed.

Contract: the rows of a step depend on the recipe's seed and the step's number alone, and so does
the learning rate. The state is weights, the optimizer's moments and the number of the next step;
with one number of threads on one machine the same state gives the same next one, bit by bit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (its usual name)

from training.storyteller.documents import row
from training.storyteller.model import ModelShape, StoryModel
from training.storyteller.optimizer import Optimizer

if TYPE_CHECKING:
    import tokenizers


class RecipeMismatchError(ValueError):
    """A checkpoint belongs to another recipe."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides about the weights.

    The first steps see contexts of `short` tokens, the last `long_share` of them the full length.
    """

    steps: int = 4000
    seed: int = 1
    tokens_per_step: int = 4096
    short: int = 320
    long_share: float = 0.25
    learning_rate: float = 4e-3
    warmup: int = 100
    bf16: bool = True
    shape: ModelShape = field(default_factory=ModelShape)

    def length(self, step: int) -> int:
        """Give the context length of a step, in tokens."""
        is_long = step >= (1 - self.long_share) * self.steps
        return self.shape.max_position_embeddings if is_long else self.short

    def rows(self, step: int) -> int:
        """Give how many contexts a step sees."""
        return max(1, self.tokens_per_step // self.length(step))

    def tokens(self, step: int) -> int:
        """Give how many tokens a step is trained on."""
        return self.rows(step) * self.length(step)

    def rate(self, step: int) -> float:
        """Give the learning rate's share of its highest: a short way up, a straight way down."""
        return min((step + 1) / self.warmup, (self.steps - step) / self.steps, 1.0)


class Trainer:
    """A model on its way. `step` is the number of steps that are done."""

    def __init__(self, recipe: Recipe, tokenizer: tokenizers.Tokenizer) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.model = StoryModel(recipe.shape)
        self.step = 0
        self._optimizer = Optimizer(self.model, recipe.learning_rate)

    def advance(self) -> float:
        """Do one step; give its loss in nats a token, over all tokens of the rows."""
        ids = self.batch(self.step)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.recipe.bf16):
            logits = self.model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step(self.recipe.rate(self.step))
        self.step += 1
        return loss.item()

    def batch(self, step: int) -> Tensor:
        """Give the rows of a step. [rows, length + 1]."""
        length, seed = self.recipe.length(step), self.recipe.seed
        rows = range(self.recipe.rows(step))
        return torch.tensor([row(self.tokenizer, f"{seed}/{step}/{i}", length + 1) for i in rows])

    def save(self, path: Path) -> None:
        """Write the state; a file that is there already stays whole until the new one is."""
        state = {
            "recipe": asdict(self.recipe),
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def load(self, path: Path) -> None:
        """Go on from a saved state.

        Raises:
            RecipeMismatchError: It was made by another recipe.
        """
        state = torch.load(path, weights_only=True)
        if state["recipe"] != asdict(self.recipe):
            raise RecipeMismatchError(f"{path}: made by another recipe: {state['recipe']}")
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

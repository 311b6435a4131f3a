"""Random models with the answers of transformers, each worked out once."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tiny_models import TEMPLATE, byte_level_tokenizer, tiny_model

VOCAB_SIZE = 512
MAX_MODEL_LEN = 256
WINDOW = 6
NUM_BEAMS = 4
EOS_IDS = tuple(range(3, VOCAB_SIZE, 17))  # so many that texts end now and then

ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}


@dataclass(frozen=True)
class Variant:
    """What tells one random model from another. `kv_heads` serve 4 heads."""

    family: str = "Llama"
    kv_heads: int = 2
    tied: bool = False
    rope: str = "default"
    window: bool = False
    bias: bool = False
    ends: bool = False  # some tokens are EOS

    def build(self) -> Any:
        """Give transformers' model, in fp32."""
        model = tiny_model(self.family, **self._changes())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    parameter += (
                        1  # else attention would be nearly flat, and faults in it invisible
                    )
        model.generation_config.eos_token_id = list(EOS_IDS) if self.ends else None
        return model

    def _changes(self) -> dict[str, Any]:
        changes: dict[str, Any] = {
            "vocab_size": VOCAB_SIZE,
            "max_position_embeddings": MAX_MODEL_LEN,
            "num_key_value_heads": self.kv_heads,
            "tie_word_embeddings": self.tied,
            "rope_parameters": {"rope_theta": 10_000.0, **ROPES[self.rope]},
            "eos_token_id": list(EOS_IDS) if self.ends else None,
        }
        if self.family == "Llama":
            return changes | {"attention_bias": self.bias, "mlp_bias": self.bias}
        changes["sliding_window"] = WINDOW if self.window else None
        if self.family == "Mistral":
            return changes
        if self.family == "Qwen3":
            changes |= {"attention_bias": self.bias, "head_dim": 16}
        # The first layer sees everything, the second only the window.
        return changes | {"use_sliding_window": self.window, "max_window_layers": 1}


@dataclass(frozen=True)
class GreedyAnswer:
    """Transformers' tokens; each one's lead over the runner-up in logits, and the runner-up."""

    token_ids: list[int]
    leads: list[float]
    runners_up: list[int]


@dataclass(frozen=True)
class BeamAnswer:
    """One of the sequences of transformers' beam search, EOS included."""

    token_ids: list[int]
    score: float


class RandomModel:
    """A random model in a folder, and what transformers answers to a prompt, worked out once."""

    def __init__(self, variant: Variant, folder: Path) -> None:
        self.variant = variant
        self.folder = folder
        self.model = variant.build()
        self.model.save_pretrained(folder)
        byte_level_tokenizer().save(str(folder / "tokenizer.json"))
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        self._greedy: dict[tuple[int, ...], GreedyAnswer] = {}
        self._beams: dict[tuple[Any, ...], list[BeamAnswer]] = {}

    def greedy(self, prompt: list[int], max_tokens: int) -> GreedyAnswer:
        """Give `generate(do_sample=False)` for one prompt, without padding."""
        key = (max_tokens, *prompt)
        if key not in self._greedy:
            self._greedy[key] = self._generate_greedy(prompt, max_tokens)
        return self._greedy[key]

    def beams(self, prompt: list[int], max_tokens: int, length_penalty: float) -> list[BeamAnswer]:
        """Give `generate(num_beams=4)` for one prompt, best first."""
        key = (max_tokens, length_penalty, *prompt)
        if key not in self._beams:
            self._beams[key] = self._generate_beams(prompt, max_tokens, length_penalty)
        return self._beams[key]

    def _generate_greedy(self, prompt: list[int], max_tokens: int) -> GreedyAnswer:
        output = self._generate(prompt, max_new_tokens=max_tokens, output_logits=True)
        best = torch.cat(output.logits).topk(2)
        return GreedyAnswer(
            token_ids=output.sequences[0, len(prompt) :].tolist(),
            leads=(best.values[:, 0] - best.values[:, 1]).tolist(),
            runners_up=best.indices[:, 1].tolist(),
        )

    def _generate_beams(
        self, prompt: list[int], max_tokens: int, length_penalty: float
    ) -> list[BeamAnswer]:
        output = self._generate(
            prompt,
            max_new_tokens=max_tokens,
            num_beams=NUM_BEAMS,
            num_return_sequences=NUM_BEAMS,
            length_penalty=length_penalty,
            early_stopping=False,
            output_scores=True,
        )
        rows = output.sequences[:, len(prompt) :].tolist()
        return [
            BeamAnswer(self._until_eos(row), score)
            for row, score in zip(rows, output.sequences_scores.tolist(), strict=True)
        ]

    @torch.inference_mode()
    def _generate(self, prompt: list[int], **options: Any) -> Any:
        ids = torch.tensor([prompt])
        return self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            pad_token_id=0,
            return_dict_in_generate=True,
            **options,
        )

    def _until_eos(self, token_ids: list[int]) -> list[int]:
        ends = set(EOS_IDS) if self.variant.ends else set()
        for index, token_id in enumerate(token_ids):
            if token_id in ends:
                return token_ids[: index + 1]
        return token_ids


def random_prompt(length: int, seed: int = 0) -> list[int]:
    """Give token ids, none of them special."""
    generator = random.Random(1000 * seed + length)
    return [generator.randrange(2, VOCAB_SIZE) for _ in range(length)]

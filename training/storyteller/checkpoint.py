"""A model folder in Hugging Face's layout, as transformers and minipaged load it.

Contract: weights are bf16 safetensors under LlamaForCausalLM's names. The same model, tokenizer and
shape give the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import load_file, save_file

from training.storyteller.documents import END, GAP
from training.storyteller.model import ModelShape, StoryModel
from training.storyteller.stories import SYSTEM

if TYPE_CHECKING:
    import tokenizers

# A chat as in training: the system prompt (ours, if the chat brings none), requests, stories.
CHAT_TEMPLATE: Final = (
    "{%- if messages[0]['role'] != 'system' -%}{{ '" + SYSTEM + "\\n\\n' }}{%- endif -%}\n"
    "{%- for message in messages -%}\n"
    "{{- message['content'] | trim -}}\n"
    "{%- if message['role'] == 'assistant' -%}{{ eos_token }}\n"
    "{%- else -%}{{ '\\n\\n' }}\n"
    "{%- endif -%}\n"
    "{%- endfor -%}\n"
)
END_ID: Final = 0


def save(folder: Path, model: StoryModel, tokenizer: tokenizers.Tokenizer) -> None:
    """Write a folder that is ready to ship."""
    assert tokenizer.token_to_id(END) == END_ID
    assert GAP == "\n\n", "the template has it too"
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: w.to(torch.bfloat16).contiguous() for name, w in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # not for its maker alone
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    _write_json(folder / "config.json", config(model.shape))
    _write_json(folder / "generation_config.json", {"eos_token_id": END_ID, "pad_token_id": END_ID})
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(model.shape))


def load(folder: Path) -> tuple[StoryModel, tokenizers.Tokenizer]:
    """Load a folder that `save` wrote. The weights are bf16's values, in fp32."""
    from tokenizers import Tokenizer

    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shape = ModelShape(**{name: fields[name] for name in asdict(ModelShape())})
    model = StoryModel(shape)
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model, Tokenizer.from_file(str(folder / "tokenizer.json"))


def config(shape: ModelShape) -> dict[str, Any]:
    """Give the config.json of a model of this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **asdict(shape),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": END_ID,
        "pad_token_id": END_ID,
        "dtype": "bfloat16",
    }


def _tokenizer_config(shape: ModelShape) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "model_max_length": shape.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
    }


def _write_json(path: Path, fields: dict[str, Any]) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")

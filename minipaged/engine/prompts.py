"""Prompts in any form -> token ids: strings, ids, dictionaries, chats; one or many of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from minipaged.engine.sampling_params import SamplingParams
from minipaged.errors import ConfigError, RequestRefusedError
from minipaged.memory.events import short
from minipaged.models.tokenizer import Tokenizer

Prompt: TypeAlias = str | Sequence[int] | Mapping[str, Any]
Message: TypeAlias = Mapping[str, Any]
ParsedPrompt: TypeAlias = tuple[str | None, list[int]]  # its text, if there is one, and token ids


def parse_prompts(prompts: Prompt | Sequence[Prompt], tokenizer: Tokenizer) -> list[ParsedPrompt]:
    """Give each of one or several prompts.

    Raises:
        RequestRefusedError: One of them is no prompt.
    """
    if not _is_list(prompts) or _is_token_ids(prompts):
        return [parse_prompt(cast(Prompt, prompts), tokenizer)]
    return [parse_prompt(prompt, tokenizer) for prompt in cast(Sequence[Prompt], prompts)]


def parse_prompt(prompt: Prompt, tokenizer: Tokenizer) -> ParsedPrompt:
    """Give (text or None, token ids) of a prompt in any of its forms.

    Raises:
        RequestRefusedError: It is no prompt.
    """
    if isinstance(prompt, Mapping):
        prompt = _only_value(prompt)
    if isinstance(prompt, str):
        return prompt, tokenizer.encode(prompt) if prompt else []
    if _is_token_ids(prompt) or (isinstance(prompt, list | tuple) and not prompt):
        return None, list(cast(Sequence[int], prompt))
    raise RequestRefusedError(f"a prompt is a string or a list of token ids, not {short(prompt)}")


def parse_chats(messages: object, tokenizer: Tokenizer) -> list[ParsedPrompt]:
    """Give the prompt of one or several conversations, as the model's chat template writes them.

    Raises:
        RequestRefusedError: The messages are not a list of roles and contents.
        ModelError: The model has no template, or it fails.
    """
    texts = [tokenizer.render_chat(chat) for chat in _conversations(messages)]
    return [(text, tokenizer.encode(text, add_special_tokens=False)) for text in texts]


def one_each(params: Any, count: int) -> list[SamplingParams]:
    """Give params for each of `count` prompts, made of one for all, one for each, or None.

    Raises:
        ConfigError: They are of another kind.
        RequestRefusedError: There are more or fewer than prompts.
    """
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if not isinstance(params, Sequence) or not all(isinstance(p, SamplingParams) for p in params):
        raise ConfigError(f"sampling params are one SamplingParams or a list, not {short(params)}")
    if len(params) != count:
        raise RequestRefusedError(f"{len(params)} sampling params for {count} prompts")
    return list(params)


def _only_value(prompt: Mapping[str, Any]) -> Any:
    if len(prompt) == 1:
        for key in ("prompt", "prompt_token_ids"):
            if key in prompt:
                return prompt[key]
    raise RequestRefusedError(
        'a prompt given as a dict has one key, "prompt" or "prompt_token_ids", '
        f"not {', '.join(map(repr, prompt)) or 'none'}"
    )


def _conversations(messages: object) -> Sequence[Any]:
    """Give the conversations in what is one of them or a list of them."""
    if not _is_list(messages):
        raise RequestRefusedError(
            f"chat takes a list of messages or a list of such lists, not {short(messages)}"
        )
    several = cast(Sequence[Any], messages)
    return [several] if all(isinstance(message, Mapping) for message in several) else several


def _is_list(value: object) -> bool:
    """Whether it is a sequence; text and bytes are none here, though they are for Python."""
    text = (str, bytes, bytearray, memoryview)
    return isinstance(value, Sequence) and not isinstance(value, text)


def _is_token_ids(prompt: object) -> bool:
    ids = cast(Sequence[object], prompt) if _is_list(prompt) else ()
    return bool(ids) and all(type(token) is int for token in ids)

"""The tokenizer that a GGUF file describes in its metadata, rebuilt as a `tokenizers.Tokenizer`.

Two kinds exist among the supported models. "gpt2" is BPE over bytes: a regular expression cuts the
text into words, merges join the bytes of a word. "llama" is BPE over characters (SentencePiece):
spaces are written as ▁, and what the vocabulary lacks falls back to byte tokens such as <0xE2>.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from minipaged.errors import ModelError
from minipaged.models.gguf import GGUFHeader
from minipaged.models.json_fields import JsonFields
from minipaged.models.reason import reason

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # token_type
_LONGEST_TOKEN = 256  # characters; only hostile files have longer ones
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3: Final = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2: Final = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}"
_SPLITS: Final = {
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}
PRE_TOKENIZERS: Final = ("gpt-2", "smollm", *_SPLITS)


def build_tokenizer(header: GGUFHeader) -> Tokenizer:
    """Rebuild the tokenizer.

    Raises:
        ModelError: An entry is missing or wrong, or the kind of tokenizer is not supported.
    """
    fields = JsonFields(header.metadata, str(header.path))
    kind = fields.text("tokenizer.ggml.model")
    tokens = fields.strings("tokenizer.ggml.tokens")
    if len(set(tokens)) != len(tokens):
        raise ModelError(f"{header.path}: tokenizer.ggml.tokens names a token twice")
    if kind not in ("gpt2", "llama"):
        raise ModelError(f"{header.path}: tokenizer {kind!r} is not supported (gpt2, llama)")
    try:
        tokenizer = _build(fields, kind, tokens)
    except ModelError:
        raise
    except Exception as error:  # tokenizers raises bare Exceptions
        raise ModelError(f"{header.path}: its tokenizer can't be built: {reason(error)}") from None
    return tokenizer


def _build(fields: JsonFields, kind: str, tokens: list[str]) -> Tokenizer:
    build = _byte_level if kind == "gpt2" else _sentencepiece
    tokenizer = build(fields, tokens)
    _add_special_tokens(tokenizer, fields, tokens)
    _add_bos(tokenizer, fields, tokens, _adds_bos(fields, kind))
    return tokenizer


def _byte_level(fields: JsonFields, tokens: list[str]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    pre = fields.text("tokenizer.ggml.pre", "gpt-2")
    merges = [tuple(merge.split(" ", 1)) for merge in fields.strings("tokenizer.ggml.merges")]
    vocab = {token: index for index, token in enumerate(tokens)}
    whole_words = pre in _SPLITS and _SPLITS[pre] is _LLAMA3  # a known word is not merged anew
    bpe: Any = models.BPE(vocab=vocab, merges=merges, ignore_merges=whole_words)
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = _pre_tokenizer(fields, pre)
    tokenizer.decoder = decoders.ByteLevel()
    if pre in _SPLITS and _SPLITS[pre] is _QWEN2:
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _pre_tokenizer(fields: JsonFields, pre: str) -> PreTokenizer:
    from tokenizers import Regex, pre_tokenizers

    if pre in _SPLITS:
        cut = pre_tokenizers.Split(Regex(_SPLITS[pre]), behavior="isolated")
        spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([cut, spell])
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    if pre != "gpt-2":
        fields.refuse("tokenizer.ggml.pre", "one of " + ", ".join(PRE_TOKENIZERS))
    return gpt2


def _sentencepiece(fields: JsonFields, tokens: list[str]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = fields.values.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise ModelError(f"{fields.where}: tokenizer.ggml.scores must score {len(tokens)} tokens")
    vocab = {token: index for index, token in enumerate(tokens)}
    unknown = tokens[fields.integer("tokenizer.ggml.unknown_token_id", 0, 0, len(tokens) - 1)]
    merges = _merges_by_score(vocab, scores)
    bpe: Any = models.BPE(
        vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(bpe)
    prefix = (
        [normalizers.Prepend("▁")] if fields.flag("tokenizer.ggml.add_space_prefix", True) else []
    )
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(
        [*steps, decoders.Strip(content=" ", left=1)] if prefix else steps
    )
    return tokenizer


def _merges_by_score(vocab: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """SentencePiece keeps scores and no merges: every way to cut a token in two is one."""
    merges = []
    for token, index in vocab.items():
        if len(token) > _LONGEST_TOKEN:
            continue
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [(left, right) for left, right in cuts if left in vocab and right in vocab]
        known.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        merges += [(-scores[index], pair) for pair in known]
    merges.sort(key=lambda merge: merge[0])
    return [pair for _, pair in merges]


def _add_special_tokens(tokenizer: Tokenizer, fields: JsonFields, tokens: list[str]) -> None:
    from tokenizers import AddedToken

    types = fields.values.get("tokenizer.ggml.token_type", [])
    if not isinstance(types, list) or len(types) not in (0, len(tokens)):
        raise ModelError(f"{fields.where}: tokenizer.ggml.token_type must fit {len(tokens)} tokens")
    for token, kind in zip(tokens, types, strict=False):
        if kind in (_UNKNOWN, _CONTROL):
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, normalized=False)])


def _adds_bos(fields: JsonFields, kind: str) -> bool:
    pre = fields.text("tokenizer.ggml.pre", "")
    default = kind == "llama" or _SPLITS.get(pre) is _LLAMA3
    return fields.flag("tokenizer.ggml.add_bos_token", default)


def _add_bos(tokenizer: Tokenizer, fields: JsonFields, tokens: list[str], wanted: bool) -> None:
    from tokenizers import processors

    if not wanted or "tokenizer.ggml.bos_token_id" not in fields:
        return
    index = fields.integer("tokenizer.ggml.bos_token_id", low=0, high=len(tokens) - 1)
    bos = tokens[index]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, index)]
    )

"""Text <-> token ids, what each token looks like, and text that grows a token at a time.

Contract: a token stands for bytes. `Detokenizer` joins these bytes and hands out a character once
its last byte is there, so what it gave never changes; `decode` is the same thing done at once.
Imports no torch, no numpy and no gguf: prompts are tokenized before any of these is loaded.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from minipaged.errors import ModelError, RequestRefusedError
from minipaged.models.reason import reason
from minipaged.models.spelling import Spelling, visible

if TYPE_CHECKING:
    import tokenizers

    from minipaged.models.chat import ChatTemplate, Message
    from minipaged.models.model_files import ModelFiles

# The library may crash on a tokenizer that has this, and none of ours has.
_WORD_PREFIX: Final = re.compile(r'"continuing_subword_prefix"\s*:\s*"[^"]')


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """Load the tokenizer of a model.

    Raises:
        ModelError: Its file is missing, damaged, or of a kind that is not supported.
    """
    path = files.tokenizer_file
    if path.suffix == ".gguf":
        from minipaged.models.gguf import read_header
        from minipaged.models.gguf_tokenizer import build_tokenizer

        return Tokenizer(build_tokenizer(read_header(path)), str(path), files)
    return Tokenizer(read_tokenizer(path), str(path), files)


def read_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """Read a tokenizer.json.

    Raises:
        ModelError: The file is missing or damaged.
    """
    from tokenizers import Tokenizer

    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: can't be read: {reason(error)}") from None
    if _WORD_PREFIX.search(content):
        raise ModelError(f"{path}: a tokenizer with a continuing_subword_prefix is not supported")
    tokenizer: tokenizers.Tokenizer = _guarded(str(path), lambda: Tokenizer.from_str(content))
    return tokenizer


class Tokenizer:
    """A model's tokenizer. Token texts are worked out on first use and kept."""

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, where: str, files: ModelFiles | None = None
    ) -> None:
        self._where = where
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._spelling = Spelling(tokenizer, where)
        self._texts: dict[int, str] = {}
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self.vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)
        self.eos_token_ids = files.config.eos_token_ids if files else ()
        self._files = files
        self.encode("a")  # some damage shows only here

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Give the token ids of a text, with BOS before it if the model's tokenizer puts it there.

        A rendered chat has its special tokens already: `add_special_tokens=False`.

        Raises:
            RequestRefusedError: The text holds what is no Unicode character.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate, from a terminal's odd bytes
            raise RequestRefusedError("the prompt is not text: UTF-8 can't write it") from None
        encode = self._tokenizer.encode
        ids: list[int] = _guarded(
            self._where, lambda: encode(text, add_special_tokens=add_special_tokens).ids
        )
        return ids

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Give the text of token ids; bytes that make no character become U+FFFD."""
        detokenizer = Detokenizer(self, skip_special_tokens)
        detokenizer.feed(token_ids)
        detokenizer.flush()
        return detokenizer.text

    def render_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """Give the text of a chat by the model's own template, its special tokens included.

        Raises:
            RequestRefusedError: The messages are not a list of roles and contents.
            ModelError: The model has no template, or it fails.
        """
        return self._chat_template.render(messages, add_generation_prompt)

    @cached_property
    def _chat_template(self) -> ChatTemplate:
        from minipaged.models.chat import load_chat_template

        if self._files is None:
            raise ModelError("this tokenizer belongs to no model: it has no chat template")
        return load_chat_template(self._files, self)

    def token_text(self, token_id: int) -> str:
        r"""Give a token's text for the eye: one visible piece, spaces kept.

        A line break is written `\n`, a piece of a character ⟨E2⟩, an invisible character ⟨U+200B⟩.
        """
        text = self._texts.get(token_id)
        if text is None:
            text = visible(self.token_bytes(token_id)) or f"⟨id {token_id}⟩"
            self._texts[token_id] = text
        return text

    def token_bytes(self, token_id: int) -> bytes:
        """Give the bytes that a token stands for."""
        return self._spelling.bytes_of(token_id)

    def token_id(self, token: str) -> int | None:
        """Give the id of a token written as in the vocabulary; None: there is no such token."""
        index: int | None = self._tokenizer.token_to_id(token)
        return index

    def vocabulary_entry(self, token_id: int) -> str | None:
        """Give a token as it is written in the vocabulary; None: the id is unknown."""
        token: str | None = self._tokenizer.id_to_token(token_id)
        return token

    @property
    def strips_first_space(self) -> bool:
        """Tell if a text's first space only marks the beginning of a word."""
        return self._spelling.strips_first_space


class Detokenizer:
    """The text of one sequence as it grows. A token costs the same, however long the text.

    With `continues` the text goes on from a prompt: the space before its first word is kept, where
    a tokenizer of SentencePiece's kind would drop it at the beginning of a text.
    """

    def __init__(
        self, tokenizer: Tokenizer, skip_special_tokens: bool = True, continues: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pieces: list[str] = []
        self._at_start = tokenizer.strips_first_space and not continues

    def feed(self, token_ids: Iterable[int]) -> str:
        """Add tokens and give the text that has become certain through them."""
        start = len(self._pieces)
        for token_id in token_ids:
            if token_id not in self._skipped:
                self._append(self._tokenizer.token_bytes(token_id))
        return "".join(self._pieces[start:])

    def flush(self) -> str:
        """Give what an unfinished character leaves behind: U+FFFD, or nothing."""
        rest = self._decoder.decode(b"", final=True)
        self._pieces.append(rest)
        return rest

    @property
    def text(self) -> str:
        """All the text that is certain."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def _append(self, piece: bytes) -> None:
        if self._at_start and piece:
            self._at_start = False
            piece = piece.removeprefix(b" ")
        self._pieces.append(self._decoder.decode(piece))


def _guarded(where: str, call: Callable[[], Any]) -> Any:
    """Call the library. What a damaged file makes of it, panics included, becomes our error."""
    try:
        return call()
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ModelError(f"{where}: damaged or not a tokenizer: {reason(error)}") from None
        raise

"""How the tokens of a vocabulary spell bytes, and how bytes are written for the eye.

A vocabulary is made of characters, but a token stands for bytes. GPT-2's alphabet has a printable
character for each byte. SentencePiece writes text as it is, ▁ for a space, and <0xE2> for a byte
that belongs to no known character.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from minipaged.errors import ModelError

if TYPE_CHECKING:
    import tokenizers

_SPACE_MARK = "▁"
_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SENTENCEPIECE: Final = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}  # decoders
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_INVISIBLE = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")  # Unicode's categories


class Spelling:
    """The bytes of each token of one vocabulary, worked out on first use and kept.

    `strips_first_space` tells if a text's first space only marks the beginning of a word.

    Raises:
        ModelError: The vocabulary spells in a third way.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, where: str) -> None:
        self._tokenizer = tokenizer
        self._bytes: dict[int, bytes] = {}
        steps = _decoder_steps(tokenizer.decoder)
        kinds = {step["type"] for step in steps}
        self._alphabet = _byte_alphabet() if kinds == {"ByteLevel"} else {}
        if not self._alphabet and not (kinds and kinds <= _SENTENCEPIECE):
            named = ", ".join(sorted(kinds)) or "none"
            raise ModelError(f"{where}: a tokenizer with the decoder {named} is not supported")
        self.strips_first_space = any(map(_strips_first_space, steps))

    def bytes_of(self, token_id: int) -> bytes:
        """Give the bytes of a token; none for an id that the vocabulary lacks."""
        piece = self._bytes.get(token_id)
        if piece is None:
            token = self._tokenizer.id_to_token(token_id) or ""
            piece = self._bytes[token_id] = self._spell(token)
        return piece

    def _spell(self, token: str) -> bytes:
        if self._alphabet:
            if all(character in self._alphabet for character in token):
                return bytes(self._alphabet[character] for character in token)
            return token.encode("utf-8")  # an added token is written as it is
        match = _BYTE_TOKEN.fullmatch(token)
        if match:
            return bytes.fromhex(match[1])
        return token.replace(_SPACE_MARK, " ").encode("utf-8")


def _decoder_steps(decoder: Any) -> Sequence[dict[str, Any]]:
    if decoder is None:
        return []
    state: dict[str, Any] = json.loads(decoder.__getstate__())
    steps: list[dict[str, Any]] = state.get("decoders", [state])
    return steps


def _strips_first_space(step: dict[str, Any]) -> bool:
    if step["type"] == "Strip":
        return bool(step["content"] == " " and step["start"] > 0)
    return bool(step["type"] == "Metaspace" and step["prepend_scheme"] != "never")


def _byte_alphabet() -> dict[str, int]:
    """Give GPT-2's alphabet: a printable character for each byte, its own where it has one."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(0x100 + index): byte for index, byte in enumerate(others)}
    return {**{chr(byte): byte for byte in printable}, **shifted}


def visible(piece: bytes) -> str:
    r"""Write bytes so that each can be seen.

    >>> visible(b" moon"), visible(b"\n\n"), visible("€".encode()[:2])
    (' moon', '\\n\\n', '⟨E2⟩⟨82⟩')
    """
    text = piece.decode("utf-8", errors="surrogateescape")
    return "".join(map(_visible_character, text))


def _visible_character(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape's mark for a byte of no character
        return f"⟨{code - 0xDC00:02X}⟩"
    if character in _ESCAPES:
        return _ESCAPES[character]
    if unicodedata.category(character) in _INVISIBLE:
        return f"⟨{code:02X}⟩" if code < 0x80 else f"⟨U+{code:04X}⟩"
    return character

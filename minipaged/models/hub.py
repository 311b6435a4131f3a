"""Models on the Hugging Face hub: what is in the cache already, and fetching the rest.

Contract: only JSON, safetensors and chat templates are ever fetched. A model that is complete in
the cache costs no network and no import of huggingface_hub. Where the hub does not answer, the
caller knows after a few seconds at most.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from minipaged.errors import ModelError
from minipaged.models.hf_config import read_config
from minipaged.models.model_files import is_complete, refuse_pickle
from minipaged.models.reason import reason

_SMALL = ("*.json", "*.jinja")
_IGNORED = ("*/*", "consolidated*")  # other formats of the same weights
ANSWER_SECONDS = 4.0


class HubUnreachableError(ModelError):
    """The hub gave no answer: no network, no name, no time."""


class Hub(Protocol):
    """The two things that are asked of the hub. Both raise whatever the network raises."""

    def list_files(self, repo_id: str) -> Sequence[str]:
        """Give the names of a repository's files."""

    def download(self, repo_id: str, patterns: Sequence[str]) -> Path:
        """Fetch the files that match, and give the snapshot's folder."""


class HuggingFaceHub:
    """The hub itself, with its own cache and progress bars."""

    def list_files(self, repo_id: str) -> Sequence[str]:
        """Give the names of a repository's files."""
        from huggingface_hub import HfApi

        info = HfApi().model_info(repo_id, timeout=ANSWER_SECONDS)
        return [file.rfilename for file in info.siblings or ()]

    def download(self, repo_id: str, patterns: Sequence[str]) -> Path:
        """Fetch the files that match, and give the snapshot's folder."""
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            repo_id,
            allow_patterns=list(patterns),
            ignore_patterns=list(_IGNORED),
            etag_timeout=ANSWER_SECONDS,
        )
        return Path(folder)


def cached_snapshot(repo_id: str) -> Path | None:
    """Give the folder of a model that is complete in the hub's cache; None: it is not."""
    repository = hub_cache() / ("models--" + repo_id.replace("/", "--"))
    try:
        revision = (repository / "refs" / "main").read_text().strip()
        folder = repository / "snapshots" / revision
    except (OSError, ValueError):
        return None
    return folder if is_complete(folder) else None


def fetch_snapshot(repo_id: str, say: Callable[[str], None], hub: Hub) -> Path:
    """Fetch a model's files into the hub's cache and give their folder.

    Raises:
        HubUnreachableError: The hub does not answer, or stops answering.
        ModelError: There is no such model, it is closed, or it has no weights that can be read.
    """
    names = _ask(repo_id, lambda: within(ANSWER_SECONDS, lambda: hub.list_files(repo_id)))
    _check_names(repo_id, names)
    say(f"fetching {repo_id} from the Hugging Face hub")
    read_config(_ask(repo_id, lambda: hub.download(repo_id, _SMALL)))  # refused before it is big
    folder: Path = _ask(repo_id, lambda: hub.download(repo_id, [*_SMALL, "*.safetensors"]))
    return folder


def hub_cache() -> Path:
    """Give the folder in which the hub's own tools keep what they fetched."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.path.expanduser(os.environ[variable]))
    cache = Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))
    return Path(os.path.expanduser(os.environ.get("HF_HOME") or cache / "huggingface")) / "hub"


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Give the result of a call, or raise TimeoutError when it takes too long.

    Looking up a name has no timeout of its own, so the call gets a thread, left behind if need be.
    """
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except Exception as error:  # it is raised again on the caller's side
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError(f"no answer within {seconds:g} seconds")
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def _ask(repo_id: str, call: Callable[[], Any]) -> Any:
    """Call the hub; errors of the network become one kind, whichever library they come from."""
    try:
        return call()
    except ModelError:
        raise
    except Exception as error:  # requests, httpx and the hub each have their own
        kind = type(error).__name__
        if kind == "GatedRepoError":
            hint = "accept its terms on its page, then run `hf auth login`"
            raise ModelError(f"{repo_id} is closed on the hub: {hint}") from None
        if kind in ("RepositoryNotFoundError", "HFValidationError"):
            raise ModelError(f"{repo_id}: the hub has no such model, or not for you") from None
        raise HubUnreachableError(
            f"the Hugging Face hub can't be reached: {reason(error)}"
        ) from None


def _check_names(repo_id: str, names: Sequence[str]) -> None:
    if any(name.endswith(".safetensors") for name in names):
        return
    for name in names:
        refuse_pickle(Path(repo_id) / name)
    raise ModelError(f"{repo_id}: the hub has no safetensors of this model")

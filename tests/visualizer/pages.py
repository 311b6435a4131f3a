"""Pages in a browser, as tests open and read them."""

from __future__ import annotations

from pathlib import Path

from chromium import Chromium


def open_html(browser: Chromium, folder: Path, page: str, place: str = "") -> None:
    """Write a page and open it; `place` is the end of its address, as #12."""
    browser.complaints.clear()
    browser.requests.clear()
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    browser.open("about:blank")
    browser.open(f"{path.as_uri()}{place}")


def text_of(browser: Chromium, selector: str) -> str:
    """Give what the first of these elements shows."""
    return str(browser.evaluate(f"document.querySelector({selector!r})?.innerText ?? 'nothing'"))


def texts_of(browser: Chromium, selector: str) -> list[str]:
    """Give what each of these elements shows."""
    texts = browser.evaluate(
        f"[...document.querySelectorAll({selector!r})].map((node) => node.innerText)"
    )
    assert isinstance(texts, list)
    return texts


def assert_quiet(browser: Chromium) -> None:
    """Nothing was complained about, and nothing was asked for but the page itself."""
    assert browser.complaints == []
    assert all(url.startswith(("file://", "about:", "data:,")) for url in browser.requests)

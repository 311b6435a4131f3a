"""The browser's half as one ES module: the files of `static/`, joined in order of their imports.

A widget's module can't import its neighbours, and a page from file:// can't either. So each file
becomes a function that runs once and gives its exports, and an import becomes a look into those.
The files may use two forms only, and it is an error if one does not:

    import { a, b } from "./neighbour.mjs";
    export function f() {}      (or class, const, async function)
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z_]+)\.mjs";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async function|function|class|const) (\w+))", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


@cache
def style(*more: str) -> str:
    """Give the style sheet that all views share, and `more` of them by their stems."""
    return "\n".join(_read(f"{name}.css") for name in ("style", *more))


@cache
def joined(entry: str) -> str:
    """Give `entry`, the stem of a file in `static/`, and all it imports, as one text.

    It defines a constant of the same name, which holds the entry's exports. Text that could end a
    script element early does not occur in it.
    """
    modules: dict[str, str] = {}
    _collect(entry, modules)
    text = "\n".join(modules.values())
    assert "</script" not in text
    assert "<!--" not in text
    return text


def widget_module(entry: str = "widget") -> str:
    """Give the module that anywidget loads; the entry exports `createWidget`."""
    return f"{joined(entry)}\nexport default {entry}.createWidget;\n"


def page_script(entry: str = "page") -> str:
    """Give the script of a page that stands alone; the entry exports `start`."""
    return f'"use strict";\n{joined(entry)}\n{entry}.start(document);\n'


def _collect(name: str, modules: dict[str, str]) -> None:
    """Add a module after those that it imports."""
    if name in modules:
        return
    source = _read(f"{name}.mjs")
    for _, neighbour in _IMPORT.findall(source):
        _collect(neighbour, modules)
    modules[name] = _as_function(name, source)


def _as_function(name: str, source: str) -> str:
    body = _IMPORT.sub(lambda m: f"const {{{m[1]}}} = {m[2]};\n", source)
    exports = ", ".join(exported for _, exported in _EXPORT.findall(body))
    body = _EXPORT.sub(r"\1", body)
    left_over = _LEFT_OVER.search(body)
    assert left_over is None, f"{name}.mjs: this form can't be joined: {left_over}"
    return f"const {name} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"


def _read(name: str) -> str:
    static = resources.files(__package__).joinpath("static")
    return static.joinpath(name).read_text(encoding="utf-8")

"""Keys typed in a box of widgets stay there: a notebook around it must not take them for its own.

In JupyterLab, `d d` with the focus on a button would delete the cell that shows the button, and
Enter would not press it. It leaves alone what has the focus and carries the attribute below.
ipywidgets can't be given attributes from Python, so a child of the box does it.
"""

from __future__ import annotations

import anywidget

BOX = "mp-own-keys"  # the class of the box that keeps its keys

_ESM = f"""
function mark({{ target }}) {{
  target.setAttribute("data-lm-suppress-shortcuts", "true");
}}
function render({{ el }}) {{
  let frame;
  const watch = () => {{
    const box = el.closest(".{BOX}"); // null until the notebook has put it into the page
    if (box) box.addEventListener("focusin", mark);
    else frame = requestAnimationFrame(watch);
  }};
  watch();
  return () => cancelAnimationFrame(frame);
}}
export default {{ render }};
"""


class OwnKeys(anywidget.AnyWidget):
    """Put it into a box that has the class `BOX`; nothing of it is seen."""

    _esm = _ESM

    def __init__(self) -> None:
        super().__init__(layout={"display": "none"})

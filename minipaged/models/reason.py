"""What went wrong inside a library, told in one line of ours."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    r"""Give the first line of an error's text, or its kind if it has none.

    What the system says stands alone, without its number and the path.

    >>> reason(ValueError("no such token\n  at line 3")), reason(TimeoutError())
    ('no such token', 'TimeoutError')
    """
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    return "".join(c if c.isprintable() else "?" for c in text)  # a file's text may be in it

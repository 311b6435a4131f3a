"""The `minipaged` command, also as `python -m minipaged`.

It imports next to nothing before it is ready for a Ctrl-C.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends in one line, too."""
    try:
        from minipaged import cli
    except KeyboardInterrupt:
        print("minipaged: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    cli.main()


if __name__ == "__main__":
    main()

"""Reading of text files that a user names, up to the size that a program can have."""

from __future__ import annotations

import errno
import os
from pathlib import Path

# A µGraph of a thousand nodes takes a megabyte as JSON.
MAX_BYTES = 64 << 20


def read_text(path: Path) -> str:
    """The UTF-8 text of a file, which may be a device that never ends.

    Raises OSError where it cannot be read or is larger than ``MAX_BYTES``, UnicodeDecodeError where
    it is no text.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    # Ends of lines as open() gives them.
    return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")

"""libpython3.10.so.1.0, which Reverb and Courier are linked against, found and loaded before they are.

Interpreters that have it inside (uv's, conda's, Debian's and Ubuntu's) don't load the file, and the loader doesn't look
for it where they have it. Once it is loaded by its path, every later import finds it by its name. What these modules
call is then still the interpreter's own code, because its symbols come first.

`python acme_ext/utils/libpython.py` prints where it is, for `scripts/bootstrap`; the exit code is 1 where it isn't.
"""

import ctypes
import os
import sys
import sysconfig

NAME = "libpython3.10.so.1.0"


def load() -> str | None:
    """Loads it where that is still to do; returns its path, or its name where the loader knows it, or None."""
    folders = dict.fromkeys([os.path.join(sys.base_prefix, "lib"), sysconfig.get_config_var("LIBDIR") or ""])
    paths = [os.path.join(folder, NAME) for folder in folders if folder]
    for name, mode in [(NAME, os.RTLD_NOLOAD), *((path, os.RTLD_NOW) for path in paths), (NAME, os.RTLD_NOW)]:
        try:
            ctypes.CDLL(name, mode)
        except OSError:
            continue
        return name
    return None


if __name__ == "__main__":
    found = load()
    if found:
        print(found)
    sys.exit(not found)

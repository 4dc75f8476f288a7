"""Finds and loads libpython3.10.so.1.0, which Reverb and Courier are linked against, before they are imported.

Statically linked interpreters (uv's, conda's, Debian's and Ubuntu's) don't load this file, and the dynamic loader
doesn't search in their folders. Once it is loaded by its path, later imports find it by its name. Reverb and Courier
still call the interpreter's own code, because its symbols come first.

`python acme_ext/utils/libpython.py` prints the library's path, for `scripts/bootstrap`; the exit code is 1 if it is not
found.
"""

import ctypes
import os
import sys
import sysconfig

NAME = "libpython3.10.so.1.0"


def load() -> str | None:
    """Loads the library if necessary; returns its path, or its name if the loader knows it, or None."""
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

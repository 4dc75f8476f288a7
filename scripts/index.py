"""What bootstrap asks of any Python 3 where there is no pip: the user's package index, and the locked uv from it.

index.py get NAME            prints a setting of the user's pip configuration, if it is there
index.py fetch LOCK FOLDER   puts the wheel of LOCK's one distribution into FOLDER/bin, if its hash is in LOCK
"""

import base64
import configparser
import hashlib
import html
import io
import os
import pathlib
import platform
import re
import sys
import urllib.parse
import urllib.request
import zipfile


def pip_setting(name):
    """A setting as pip reads it: from its environment variable, else from its files, the last of which counts."""
    value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    if value:
        return value
    own = os.environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return None
    home = pathlib.Path(os.environ.get("HOME", "/nonexistent"))
    folders = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    files = [pathlib.Path(folder, "pip/pip.conf") for folder in folders.split(":")]
    files += [pathlib.Path("/etc/pip.conf"), home / ".pip/pip.conf"]
    files += [pathlib.Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf")]
    config = configparser.RawConfigParser()
    config.read([*files, *filter(None, [own])], encoding="utf-8")
    for section in ("install", "global"):
        value = config.get(section, name, fallback=None)
        if value:
            return value
    return None


def get(url):
    """The address and content that a URL leads to; a name and password in it are sent as pip sends them."""
    parts = urllib.parse.urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), headers={"Accept": "text/html"})
    if at:
        token = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.geturl(), answer.read()


def fetch(lock, folder):
    """Unpacks the programs of the wheel for this machine; says why it can't."""
    text = pathlib.Path(lock).read_text(encoding="utf-8")
    name, version = re.match(r"([\w-]+)==([^\s]+)", text).groups()
    hashes = set(re.findall(r"sha256:([0-9a-f]{64})", text))
    index = pip_setting("index-url")
    if not index:
        sys.exit("bootstrap: this Python has no pip, and no pip configuration names a package index.")
    cert = pip_setting("cert")
    if cert:
        os.environ.setdefault("SSL_CERT_FILE", cert)
    try:
        base, page = get(index.rstrip("/") + "/" + name + "/")
        system = {"Linux": "manylinux", "Darwin": "macosx"}[platform.system()]
        tag = rf"{system}[\w.]*{platform.machine()}[\w.]*"
        wheel = re.compile(rf"{name}-{re.escape(version)}-py3-none-{tag}\.whl")
        for link in re.findall(r"""href=["']([^"']+)""", page.decode()):
            url = urllib.parse.urljoin(base, html.unescape(link))
            if wheel.fullmatch(urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])):
                break
        else:
            sys.exit(f"bootstrap: the package index has no wheel of {name} {version}.")
        if urllib.parse.urlsplit(url).hostname == urllib.parse.urlsplit(index).hostname:
            url = urllib.parse.urlsplit(url)._replace(netloc=urllib.parse.urlsplit(index).netloc).geturl()
        content = get(url)[1]
    except OSError as error:
        sys.exit(f"bootstrap: {name} could not be fetched: {error}")
    if hashlib.sha256(content).hexdigest() not in hashes:
        sys.exit(f"bootstrap: the wheel of {name} {version} from the package index is not the locked one.")
    programs = pathlib.Path(folder, "bin")
    programs.mkdir(parents=True)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.namelist():
            if ".data/scripts/" in member:
                program = programs / member.rpartition("/")[2]
                program.write_bytes(archive.read(member))
                program.chmod(0o755)


if __name__ == "__main__":
    if sys.argv[1] == "get":
        print(pip_setting(sys.argv[2]) or "")
    else:
        fetch(*sys.argv[2:])

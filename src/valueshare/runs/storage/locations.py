"""The location of a run: a folder, or a URL of a store, like s3://bucket/runs/a.

Nothing heavy is imported here: the command line reads it before it knows the command.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from valueshare.errors import InvalidInput

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # one letter is a drive of Windows
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")  # CONTAINER@ACCOUNT: no secret before the @
_HOSTS = ("sftp", "ssh", "smb", "http", "https", "webhdfs")  # URLs that need a host
BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "oss", "oci", "r2", *_CONTAINERS)  # or a bucket


@dataclass(frozen=True, repr=False)
class Url:
    """A URL; it is shown without the user and password that may be in it."""

    full: str  # with its secret; only for the protocol's driver

    @property
    def scheme(self) -> str:
        return self.full.partition("://")[0]

    @property
    def name(self) -> str:
        return str(self).rpartition("/")[2]  # sftp://USER:PASSWORD@HOST is HOST

    @property
    def secret(self) -> str:
        """USER:PASSWORD before the host; empty where there is none."""
        host = self.full.partition("://")[2].partition("/")[0]
        return "" if self.scheme in _CONTAINERS else host.rpartition("@")[0]

    def __truediv__(self, name: str | Path) -> "Url":
        return Url(f"{self.full}/{name}")

    def __str__(self) -> str:
        return self.full.replace(f"{self.secret}@", "", 1) if self.secret else self.full

    def __repr__(self) -> str:
        return f"Url({str(self)!r})"

    def redact(self, text: str) -> str:
        """A text about the URL without the user and password before its host, and without the password anywhere.

        A user name stays in all other places: it is no secret, and may be a common word.
        """
        text = text.replace(self.full, str(self))
        for word in (self.secret and f"{self.secret}@", self.secret.partition(":")[2]):
            for form in (word, unquote(word)):
                text = text.replace(form, "") if form else text
        return text


Location = Path | Url


def resolve_location(folder: str | Path | Url) -> Location:
    """The folder or URL that a text names; file:///a/b is the folder /a/b, and ~ at the start the home folder.

    A `Path` made of s3://bucket has lost a slash, s3:/bucket, and is understood.
    """
    if isinstance(folder, Url):
        return folder
    if not isinstance(folder, str | Path):
        raise InvalidInput(f"{folder!r} is not a location of a run: write a folder or a URL")
    if folder == "":  # as a path it would be the current folder
        raise InvalidInput("'' is not a folder: write its name, like runs/first")
    text = str(folder)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidInput(f"{text!a} has bytes that are not UTF-8: choose a folder with another name")
    if "::" in text and ":/" in text:
        raise InvalidInput(f"{text.partition('::')[0]}::...: give one URL, not a chain of them")
    match = _SCHEME.match(text)
    if match is None:
        return Path(folder).expanduser() if text == "~" or text.startswith("~/") else Path(folder)
    scheme, rest = match[1].lower(), text[match.end() :]
    if scheme == "file":
        return Path("/" + rest.lstrip("/"))
    if scheme == "local":
        rest = "/" + rest.lstrip("/")
    elif rest.startswith("/"):  # the second slash; after a third one there is no host
        rest = rest[1:]
    url = Url(f"{scheme}://{rest.rstrip('/')}")
    if "?" in rest or "#" in rest:
        shown = str(url).partition("?")[0].partition("#")[0]
        raise InvalidInput(
            f"{shown}: the URL of a run cannot contain ? or #: pass such options in the settings of the protocol"
        )
    first = "HOST" if scheme in _HOSTS else "BUCKET"
    host = rest.partition("/")[0].rpartition("@")[2].partition(":")[0]
    if not rest.strip("/") or (not host and scheme in (*_HOSTS, *BUCKETS)):
        raise InvalidInput(f"{url} is not a location of a run: write {scheme}://{first}/RUN")
    return url

"""Bytes somebody saved, pasted or piped -> text, without what shells, terminals, mail and web pages add to it."""

import html
import re
from collections import Counter
from collections.abc import Iterable

from gpuwarm.errors import InputError

_BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_MAGIC = (
    (b"PK\x03\x04", "a zip archive (a gpuwarm recording NAME.npz is one: `gpuwarm analyze` takes it)"),
    (b"\x1f\x8b", "a gzip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it first"),
    (b"BZh", "a bzip2 archive: unpack it first"),
    (b"\xfd7zXZ", "an xz archive: unpack it first"),
    (b"\x89PNG", "a picture: paste the text instead of a screenshot"),
    (b"\xff\xd8\xff", "a picture: paste the text instead of a screenshot"),
    (b"GIF8", "a picture: paste the text instead of a screenshot"),
    (b"%PDF", "a PDF document"),
    (b"ftrt", "a TensorRT engine: `gpuwarm run` takes it"),
    (b"vtrt", "a TensorRT-RTX engine: `gpuwarm run` takes it"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a Windows program"),
)
_EXPECTED = "expected is the text that nvidia-smi or trtexec prints"
_PROBE_BYTES = 4096  # encodings and binary files show within their first page
_UTF16_SHARE = 0.3  # of NULs at odd (or even) places; half of all bytes are NUL in ASCII written as UTF-16
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\v\f\r\b\x1b")
_ODD_ASCII = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n")
_CONTROL_SHARE = 0.1  # of bytes no text has; a log has an escape sequence or two a line

ENDS_BYTES = 1 << 20  # of a file, within which its kind shows
LONGEST_MARGIN = 200  # characters; a time stamp and the name of a container have less

_ESCAPED_PAGE = re.compile(rb"&nbsp;|&[lg]t;|&#\d+;|<br ?/?>|</?pre>")  # the source of a web page, not what it shows
_BREAK = re.compile(r"<br ?/?>\n?|</(?:p|div)>")
_TAG = re.compile(r"</?(?:pre|code|p|div|span)\b[^<>]*>")
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][0-9A-B]|[=>78cDEHM])")
_LINE_END = re.compile(r"(?<!\r)\r+\n|[\r\v\f\x85\u2028\u2029]")
# Text within JSON, or printed as a string of Python's.
_ESCAPED = re.compile(r"\\([nrt\"/\\]|(?:u00|x)(?:1b|[2-7][0-9a-f]))")
_ESCAPES = {"n": "\n", "r": "", "t": " "}
# What must not reach a terminal from a file: control codes, and marks that turn the direction of writing.
_UNPRINTABLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# What word processors and chats turn ASCII into, and box drawing that some terminals copy for bars.
_TYPOGRAPHY = str.maketrans(
    {
        "\u00a0": " ",
        "\u2007": " ",
        "\u202f": " ",
        "\u3000": " ",
        "\u200b": "",
        "\u200e": "",
        "\u2060": "",
        "\ufeff": "",
        "\u2013": "-",
        "\u2014": "--",
        "\u2026": "...",
        "\u2502": "|",
        "\u2503": "|",
        "\uff5c": "|",
        "\u2500": "-",
        "\u2501": "-",
        "\u2550": "=",
    }
)


def utf8(data: bytes, source: str) -> bytes:
    """The same text as UTF-8 without byte-order mark; bytes that are no text in any way are replaced.

    Raises:
        InputError: there is nothing in it, or it is not text.
    """
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise InputError(f"{source} is {what}; {_EXPECTED}")
    encoding = _encoding(data)
    if encoding is not None:
        data = data.decode(encoding, "replace").encode("utf-8")
    if b"\0" in data:  # PowerShell's >> appends UTF-16 to a file that began otherwise
        data = data.replace(b"\0", b"")
    probe = data[:_PROBE_BYTES]
    strange = sum(byte in _CONTROLS for byte in probe)
    if strange > _CONTROL_SHARE * len(probe):
        raise InputError(f"{source} is not text; {_EXPECTED}, for example `nvidia-smi -q`")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if _ESCAPED_PAGE.search(data, 0, ENDS_BYTES) and b"<nvidia_smi_log" not in data:  # XML escapes by itself
        data = _TAG.sub("", html.unescape(_BREAK.sub("\n", data.decode("utf-8", "replace")))).encode()
    if not probe.strip() and not data.strip():
        raise InputError(f"{source} is empty; {_EXPECTED}, for example `nvidia-smi -q`")
    return data


def _encoding(data: bytes) -> str | None:
    """None where the bytes are already UTF-8, or as good as."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            return None if name == "utf-8" else name
    probe = data[:_PROBE_BYTES]
    half = max(1, len(probe) // 2)
    if probe[1::2].count(0) > _UTF16_SHARE * half:
        return "utf-16-le"
    if probe[0::2].count(0) > _UTF16_SHARE * half:
        return "utf-16-be"
    return None


def printable(text: str) -> str:
    """Text on one line that does nothing to a terminal but stand there."""
    return _UNPRINTABLE.sub("", " ".join(text.split()))


def has_any(data: bytes, marks: Iterable[bytes]) -> bool:
    """Whether the first or the last megabyte has one of some marks in it."""
    last = max(0, len(data) - ENDS_BYTES)
    return any(data.find(mark, 0, ENDS_BYTES) >= 0 or data.find(mark, last) >= 0 for mark in marks)


def plain_lines(data: bytes) -> list[str]:
    """UTF-8 as lines: colour codes out, tabs to blanks, typographic signs to the ASCII they were."""
    text = data.decode("utf-8", "replace")
    if "\\n" in text and text.count("\n") <= text.count("\\n") + 1:
        text = _ESCAPED.sub(lambda found: _unescaped(found[1]), text)
        data = text.encode()
    if not text.isascii() or len(data.translate(None, _ODD_ASCII)) < len(data):  # looked for at once: logs can be long
        text = text.translate(_TYPOGRAPHY)
        text = _LINE_END.sub("\n", text)
        text = _ESCAPE.sub("", text)
        text = _UNPRINTABLE.sub("", text)
    return [line.expandtabs().rstrip() for line in text.split("\n")]


def _unescaped(code: str) -> str:
    return chr(int(code[-2:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)


def without_margin(lines: list[str], anchors: Iterable[str]) -> list[str]:
    """Cut what stands before every line: quote marks, indentation, timestamps, a container's name.

    Args:
        lines: all lines.
        anchors: what stands before text that certainly began at the left edge; digits in it may differ by line.
    """
    shapes = Counter(margin_shape(margin) for margin in anchors if len(margin) <= LONGEST_MARGIN)
    if not shapes:
        return lines
    shape = shapes.most_common(1)[0][0]
    margin = re.compile(shape)
    bare = re.compile(shape.removesuffix("\\ ") + "$")  # an empty line loses the blank at its end
    return [line[found.end() :] if (found := margin.match(line) or bare.match(line)) else line for line in lines]


def margin_shape(margin: str) -> str:
    """The pattern of a margin; digits in it may differ by line."""
    return "".join("\\d" if sign.isdigit() else re.escape(sign) for sign in margin)


# What srun -l, pdsh, Ansible and Docker Compose put before each line of a machine's output.
_LABELLED = re.compile(rb"(?m)^[ \t]*([\w.-]{1,64})(:|[ \t]+\|)(?:[ \t]+|\r?$)(.*)")
_SAID_BY_ALL = 12  # characters; every machine's output has lines so long that are alike but for their numbers


def without_labels(data: bytes, source: str) -> bytes:
    """Cut the name of the machine from before each line.

    Raises:
        InputError: the lines are of several machines.
    """
    head = data[:ENDS_BYTES]
    labelled = _LABELLED.findall(head)
    if not labelled or 2 * len(labelled) < sum(not line.isspace() for line in head.split(b"\n") if line):
        return data
    said: dict[bytes, set[bytes]] = {}
    for label, _, line in labelled:
        said.setdefault(label, set()).add(re.sub(rb"[\d.]+", b"0", line.strip()))
    label, sign, _ = labelled[0]
    if len(said) == 1:
        return re.sub(rb"(?m)^[ \t]*%b%b[ \t]?" % (re.escape(label), re.escape(sign)), b"", data)
    if any(len(line) >= _SAID_BY_ALL for line in set.intersection(*said.values())):
        pattern = printable((label + sign).decode("utf-8", "replace"))
        raise InputError(
            f"{source} holds lines of {len(said)} machines, each with its name before it: give one machine's, "
            f"`grep '^ *{pattern}' FILE | gpuwarm check -`"
        )
    return data

"""nvidia-persistenced as the system has it: its process, its socket, and the systemd unit with its drop-ins."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuwarm.machine import PersistenceDaemon

SERVICE = "nvidia-persistenced.service"
_COMM = "nvidia-persiste"  # the kernel keeps 15 characters of a process's name
_SOCKET = "var/run/nvidia-persistenced/socket"
# systemd.unit(5), "Unit File Load Path": the first folder that has a file of a name wins.
_UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
_UNIT_FOLDERS_UNMERGED = (*_UNIT_FOLDERS, "lib/systemd/system")  # where /lib is not a link to /usr/lib


def read(root: Path) -> PersistenceDaemon:
    """The daemon of the system below `root`."""
    pid = _running(root)
    socket = (root / _SOCKET).exists() or (root / _SOCKET.removeprefix("var/")).exists()
    command = () if pid is None else _command(root / "proc" / str(pid))
    unit = next((folder / SERVICE for folder in _folders(root) if _is_there(folder / SERVICE)), None)
    if unit is None:
        return PersistenceDaemon(pid, command, socket)
    drop_ins = _drop_ins(root)
    return PersistenceDaemon(
        pid=pid,
        command=command,
        socket=socket,
        unit=_shown(unit, root),
        drop_ins=tuple(_shown(path, root) for path in drop_ins),
        unit_command=_exec_start((unit, *drop_ins)),
        masked=unit.is_symlink() and str(unit.readlink()) == "/dev/null",
    )


def _running(root: Path) -> int | None:
    for comm in (root / "proc").glob("[0-9]*/comm"):
        try:
            name = comm.read_text().strip()
        except OSError:
            continue  # it ended while we looked
        if name == _COMM:
            return int(comm.parent.name)
    return None


def _command(process: Path) -> tuple[str, ...]:
    try:
        raw = (process / "cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(part.decode(errors="replace") for part in raw.split(b"\0") if part)


def _folders(root: Path) -> Iterator[Path]:
    return (root / folder for folder in _UNIT_FOLDERS_UNMERGED)


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def _drop_ins(root: Path) -> tuple[Path, ...]:
    """In the order of their names; of two with one name the folder that comes first wins."""
    by_name: dict[str, Path] = {}
    for folder in _folders(root):
        for path in (folder / f"{SERVICE}.d").glob("*.conf"):
            by_name.setdefault(path.name, path)
    return tuple(by_name[name] for name in sorted(by_name))


def _exec_start(files: Iterable[Path]) -> str | None:
    """The last command that was not taken back: an empty `ExecStart=` drops those before it."""
    command: str | None = None
    for path in files:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        for line in text.replace("\\\n", " ").splitlines():
            key, equals, value = line.partition("=")
            if equals and key.strip() == "ExecStart":
                command = " ".join(value.split()) or None
    return command


def _shown(path: Path, root: Path) -> str:
    return f"/{path.relative_to(root)}"

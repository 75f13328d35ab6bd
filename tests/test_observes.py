"""gpuwarm observes and never sets: no setter is called, and no process is started with privileges."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from standin_nvml.build import setters

import gpuwarm

PACKAGE = Path(gpuwarm.__file__).parent
STARTS_PROCESSES = {"Popen", "run", "call", "check_call", "check_output", "system", "popen", "posix_spawn", "fork"}
PRIVILEGED = ("sudo", "pkexec", "doas", "nvidia-smi", "systemctl", "modprobe", "nvpmodel", "jetson_clocks", "tee ")


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), ast.parse(path.read_text())


def called(node: ast.Call) -> str:
    """subprocess.Popen(...) -> "subprocess.Popen"."""
    return ast.unparse(node.func)


def process_starts(tree: ast.Module) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call
        for call in calls
        if called(call).startswith(("os.exec", "os.spawn"))
        or (called(call).startswith(("subprocess.", "os.", "pty.")) and called(call).split(".")[-1] in STARTS_PROCESSES)
    ]


def words(tree: ast.AST) -> set[str]:
    """Every name, attribute and string of a tree: setters might be looked up by their names, too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_no_nvml_setter_is_named_anywhere():
    changing = set(setters())
    assert len(changing) > 50  # the list is the binding's own
    assert {str(path): words(tree) & changing for path, tree in trees() if words(tree) & changing} == {}


def test_a_planted_setter_is_seen():
    assert words(ast.parse("getattr(pynvml, 'nvmlDeviceSetPersistenceMode')(handle, 1)")) & set(setters())


def test_modules_that_start_processes_know_no_privileged_command():
    starting = {str(path): tree for path, tree in trees() if process_starts(tree)}
    assert "measure/child.py" in starting
    named = {
        path: sorted(word for word in words(tree) for command in PRIVILEGED if word.startswith(command))
        for path, tree in starting.items()
    }
    assert {path: found for path, found in named.items() if found} == {}


@pytest.mark.parametrize("line", ["subprocess.run(['sudo', 'x'])", "os.system('sudo x')", "os.execvp('sudo', [])"])
def test_a_planted_start_is_seen(line: str):
    assert process_starts(ast.parse(line))


def test_no_shell_is_started():
    shells = [
        str(path)
        for path, tree in trees()
        for call in process_starts(tree)
        if called(call) in ("os.system", "os.popen") or any(word.arg == "shell" for word in call.keywords)
    ]
    assert shells == []

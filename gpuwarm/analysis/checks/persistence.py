"""Whether the driver stays loaded between processes, who sees to that, and what it costs where nobody does."""

import shlex
import statistics
from collections.abc import Iterator

from gpuwarm.analysis.checks.load import RESTING_PSTATE, at_rest, called, hidden_memory_mib, idle
from gpuwarm.analysis.checks.product import always_p0, platform, product
from gpuwarm.analysis.finding import Finding, Severity
from gpuwarm.machine import DriverLoad, GpuProcess, GpuState, HostState, MachineState, PersistenceDaemon

JUST_BOOTED_S = 120.0  # services that turn persistence on may still be starting
NEGLIGIBLE_LOAD_MS = 50.0  # CUDA's own start takes 0.2 s or more, so that less than this is not seen beside it
_DAEMON = "nvidia-persiste"  # the kernel keeps 15 characters of a process's name
_WITHOUT = "--no-persistence-mode"
_FOR_NOW = "sudo nvidia-smi -pm 1"
_START = "sudo systemctl enable --now nvidia-persistenced"
_DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d"

ABOUT = {
    "persistence-on": """\
The driver keeps the GPU initialised while no process uses it, so a process's first CUDA call does not pay for loading
it. nvidia-persistenced is NVIDIA's way of doing so; the older way, `nvidia-smi -pm 1` without the daemon ("legacy"),
sets the same flag but is deprecated, and is gone after a reboot.""",
    "persistence-off": """\
When the last process that uses the GPU ends, the driver shuts the GPU down, and the next process's first CUDA call
loads it again: tenths of a second on a desktop card, seconds on servers, more with every GPU and with ECC memory to
clear. Locked clocks and energy counters are lost on the way. No warm-up loop inside the process helps, because each
new process pays before its first inference.

The flag is what counts. That nvidia-persistenced runs says nothing: Ubuntu's unit starts it with
--no-persistence-mode, and then it holds nothing. `gpuwarm check --measure` times what it costs on this machine.""",
    "persistence-off-masked": """\
The flag is off, but another process holds the GPU open, so the driver stays loaded and nothing is paid. A display
server, a monitor or a running service does this without meaning to; when it stops, the cost is back (see
persistence-off). A machine that is measured with a monitor running and deployed without one differs in just this.""",
    "persistence-not-applicable": """\
Persistence mode is a setting of the Linux driver on a machine that owns its GPU. On Windows the driver is always
loaded, and under WSL2 nvidia-smi prints a constant "On" that says nothing about the Windows host. A vGPU guest's
driver state is its host's business. On Jetson the GPU is part of the chip: power mode and clock governor matter.""",
    "persistence-unknown": """\
What this source shows does not tell whether the driver stays loaded: the flag is missing, or it is off in a place
where that means little (inside a container it can read off while the host has it on; just after boot the service
that turns it on may still be starting). What would tell is in the finding.""",
}


def check(machine: MachineState, gpu: GpuState) -> Iterator[Finding]:
    """Exactly one finding a GPU."""
    system = _without_persistence(machine, gpu)
    if system is not None:
        yield _not_applicable(system, gpu)
    elif gpu.persistence_mode == "on":
        yield _on(machine, gpu)
    elif gpu.persistence_mode == "off":
        yield _off(machine, gpu)
    else:
        yield _unknown(
            gpu,
            "the GPU does not support it" if gpu.persistence_mode == "n/a" else "this source does not show it",
            "nvidia-smi --query-gpu=index,persistence_mode --format=csv",
        )


def _without_persistence(machine: MachineState, gpu: GpuState) -> str | None:
    """The kind of system that has no persistence mode to speak of, where this is one."""
    kind = product(gpu)
    if kind in ("vgpu", "jetson"):
        return {"vgpu": "vGPU guest", "jetson": "Jetson"}[kind]
    return {"wsl2": "WSL2 guest", "windows": "Windows", "jetson": "Jetson"}.get(platform(machine, gpu))


def _not_applicable(system: str, gpu: GpuState) -> Finding:
    printed = None if gpu.persistence_mode in ("n/a", "unknown") else f"shown as {gpu.persistence_mode}"
    constant = f"{printed}, a constant here" if printed and system == "WSL2 guest" else printed
    advice, command = {
        "WSL2 guest": (
            "The Windows host's driver is always loaded: nothing to turn on. What can be held is the clock, from an "
            "administrator's prompt on the host: nvidia-smi -lgc MIN,MAX (undone by nvidia-smi -rgc). The host's own "
            "view:",
            f"nvidia-smi.exe -i {gpu.index} -q -d PERFORMANCE,CLOCK",
        ),
        "Windows": (
            "The driver is always loaded. What matters is the driver model: WDDM hands work to the GPU in batches, so "
            "latencies scatter; TCC or MCDM, where the board has them, do not.",
            f"nvidia-smi -i {gpu.index} --query-gpu=driver_model.current,pstate,clocks.sm --format=csv",
        ),
        "Jetson": (
            "Power mode and clock governor decide: take the mode with the highest clocks (sudo nvpmodel -m ID; "
            "/etc/nvpmodel.conf names them), then hold them (sudo jetson_clocks). What is set now:",
            "sudo nvpmodel -q && sudo jetson_clocks --show",
        ),
        "vGPU guest": (
            "The hypervisor's host keeps the driver loaded, or not: ask who runs it. On that host:",
            "nvidia-smi --query-gpu=index,persistence_mode --format=csv",
        ),
    }[system]
    return Finding(
        "persistence-not-applicable",
        "not_applicable",
        f"Persistence: not applicable here ({system})",
        gpu.index,
        evidence="; ".join(filter(None, (constant, gpu.driver_model and f"driver model {gpu.driver_model}"))) or None,
        advice=advice,
        command=command,
    )


def _on(machine: MachineState, gpu: GpuState) -> Finding:
    host = machine.host
    if host is None:
        return Finding(
            "persistence-on", "ok", "Persistence: on", gpu.index, evidence="the flag; a file cannot show who set it"
        )
    if host.container:
        return Finding(
            "persistence-on",
            "ok",
            "Persistence: on",
            gpu.index,
            evidence=f"the flag; set outside this {host.container} container",
        )
    daemon = host.persistence_daemon
    if daemon.socket and _WITHOUT not in daemon.command:  # its process may be hidden from this user
        return Finding("persistence-on", "ok", "Persistence: on (daemon)", gpu.index, evidence=_seen(host))
    how = "set by hand" if daemon.socket else "legacy"
    advice, command = _turn_on(machine)
    for_good = command != _FOR_NOW
    return Finding(
        "persistence-on",
        "info",
        f"Persistence: on ({how}), until the next reboot",
        gpu.index,
        evidence=_seen(host),
        advice=advice if for_good else "To keep it, run nvidia-persistenced as a service.",
        command=command if for_good else None,
    )


def _off(machine: MachineState, gpu: GpuState) -> Finding:
    host = machine.host
    holders = _holders(machine, gpu)
    if host and host.container:
        return _unknown(
            gpu,
            f"off as seen inside this {host.container} container, where it can differ from the host",
            "nvidia-smi --query-gpu=index,persistence_mode --format=csv",
            where="On the host",
        )
    if host and host.uptime_s is not None and host.uptime_s < JUST_BOOTED_S:
        return _unknown(
            gpu,
            f"off {host.uptime_s:.0f} s after boot, when its service may still be starting",
            "gpuwarm check --wait",
        )
    if holders:
        _, command = _turn_on(machine)
        return Finding(
            "persistence-off-masked",
            "info",
            f"Persistence: off, but masked by {holders} holding the device; the cost returns when that stops",
            gpu.index,
            evidence=_evidence(machine, gpu),
            advice="Nothing is paid meanwhile. To be independent of it:",
            command=command,
        )
    return _costly(machine, gpu)


def _costly(machine: MachineState, gpu: GpuState) -> Finding:
    host = machine.host
    severity: Severity = "warning"
    cost = "what that costs here was not measured"
    if host is not None:
        cost += " (gpuwarm check --measure does)"
    if host and host.driver_load:
        severity, cost = _measured(host.driver_load)
    advice, command = _turn_on(machine)
    return Finding(
        "persistence-off",
        severity,
        f"Persistence: off, and {cost}",
        gpu.index,
        evidence=_evidence(machine, gpu),
        advice=f"Every new process pays for loading the driver before its first CUDA call. {advice}",
        command=command,
    )


def _measured(load: DriverLoad) -> tuple[Severity, str]:
    cost_ms = statistics.median(load.alone_ms) - statistics.median(load.held_ms)
    if cost_ms < NEGLIGIBLE_LOAD_MS:
        return (
            "info",
            f"costs nothing to speak of here (measured: {max(cost_ms, 0.0):.1f} ms): something keeps it loaded",
        )
    return "warning", f"costs {cost_ms:.0f} ms here (measured)"


def _opens(host: HostState) -> str | None:
    """What was measured, in words."""
    load = host.driver_load
    if load is None:
        return None
    alone, held = (f"{min(times):.1f} to {max(times):.1f} ms" for times in (load.alone_ms, load.held_ms))
    return f"opening {load.device} {len(load.alone_ms)} times took {alone}, while a process held it {held}"


def _unknown(gpu: GpuState, why: str, command: str, *, where: str = "What would tell") -> Finding:
    return Finding(
        "persistence-unknown",
        "unknown",
        "Persistence: cannot tell",
        gpu.index,
        evidence=why,
        advice=f"{where}:",
        command=command,
    )


def _holders(machine: MachineState, gpu: GpuState) -> str | None:
    """Who keeps this GPU's driver state loaded, in words."""
    if gpu.processes:
        return called(gpu.processes)
    opened = _open_handles(machine.host, gpu)
    if opened:
        return called(opened)
    if gpu.display_active:
        return "the display session"
    used = hidden_memory_mib(machine, gpu)
    return None if used is None else f"a client that is not listed ({used:.0f} MiB in use)"


def _open_handles(host: HostState | None, gpu: GpuState) -> tuple[GpuProcess, ...]:
    if host is None:
        return ()
    minors = {node.pci_bus_id.lower()[-12:]: node.minor for node in host.gpu_nodes}  # NVML's domains have 8 digits
    minor = minors.get((gpu.pci_bus_id or "").lower()[-12:])
    device = f"nvidia{gpu.index if minor is None else minor}"
    return tuple(
        GpuProcess(holder.pid, holder.name)
        for holder in host.holders
        if device in holder.devices and holder.name != _DAEMON
    )


def _evidence(machine: MachineState, gpu: GpuState) -> str:
    facts = ["the flag is off"]
    host = machine.host
    if host is None:
        if gpu.processes is None:
            facts.append("whether something holds the device is not shown")
        elif not gpu.processes:
            facts.append("no process is listed")
    else:
        facts.append(_seen(host))
        if not host.holders_complete:
            facts.append("not every process could be looked at for open device files (root can)")
    if host is None and gpu.processes == () and gpu.pstate is not None and gpu.pstate >= RESTING_PSTATE:
        facts.append(f"P{gpu.pstate}: a monitor that is in no list may hold it, for a GPU just loaded would be at P0")
    if _just_woken(gpu):
        facts.append("P0 at 0 % with nobody using it: looking at it has just loaded the driver")
    return "; ".join(facts)


def _just_woken(gpu: GpuState) -> bool:
    """Whether it is up though nobody uses it. Where P0 is the only state, a clock must say so."""
    if gpu.processes != () or gpu.pstate != 0 or not idle(gpu) or at_rest(gpu):
        return False
    return not always_p0(gpu) or gpu.sm_clock_mhz is not None


def _seen(host: HostState) -> str:
    """The daemon's process and its unit in words, and what was measured."""
    daemon = host.persistence_daemon
    if daemon.pid is None:
        running = "nvidia-persistenced is not to be seen" + (", but its socket is there" if daemon.socket else "")
    else:
        running = f"nvidia-persistenced runs (pid {daemon.pid}): {shlex.join(daemon.command)}"
    return "; ".join(filter(None, (running, _unit(daemon), _opens(host))))


def _unit(daemon: PersistenceDaemon) -> str:
    if daemon.masked:
        return "its unit is masked"
    if daemon.unit is None:
        return "it has no systemd unit"
    return f"unit {daemon.unit}" + (f" with {', '.join(daemon.drop_ins)}" if daemon.drop_ins else "")


def _turn_on(machine: MachineState) -> tuple[str, str]:
    """Advice and command that turn persistence on: for good where this system's way is known, else for now."""
    if machine.host is None:
        return (
            "Turn persistence on now with the command below; for good, run nvidia-persistenced as a service (Ubuntu "
            "starts it with --no-persistence-mode: a drop-in must take that away).",
            _FOR_NOW,
        )
    daemon = machine.host.persistence_daemon
    lasting = _install(machine.host) if daemon.unit is None else _serve(daemon)
    if lasting is not None:
        return "To keep the driver loaded:", lasting
    return (
        "Turn persistence on until the next reboot with the command below; for good, run nvidia-persistenced as a "
        "service (NVIDIA's installer leaves samples of one in /usr/share/doc/NVIDIA_GLX-1.0/samples).",
        _FOR_NOW,
    )


def _serve(daemon: PersistenceDaemon) -> str:
    """The command that makes the system's own service keep the driver loaded."""
    if daemon.masked:
        return f"sudo systemctl unmask nvidia-persistenced && {_START}"
    command = daemon.unit_command or shlex.join(daemon.command)
    if _WITHOUT in command:
        start = " ".join(command.replace(_WITHOUT, "--persistence-mode").replace("%", "%%").split())
        return (
            f"sudo install -d {_DROP_IN} && printf '[Service]\\nExecStart=\\nExecStart={start}\\n' | "
            f"sudo tee {_DROP_IN}/zz-persistence-mode.conf && sudo systemctl daemon-reload && "
            "sudo systemctl restart nvidia-persistenced"
        )
    return _START if daemon.pid is None else "sudo systemctl restart nvidia-persistenced"


def _install(host: HostState) -> str | None:
    """The command that installs the service; None where it is not known.

    Ubuntu's driver packages bring it along. Where they have not, the driver came from elsewhere, and one of Ubuntu's
    packages beside it would break it.
    """
    installs = {
        "debian": "sudo apt-get install nvidia-persistenced",
        "rhel": "sudo dnf install nvidia-persistenced",
        "fedora": "sudo dnf install nvidia-persistenced",
        "suse": "sudo zypper install nvidia-persistenced",
        "arch": "sudo pacman -S nvidia-utils",
    }
    if "ubuntu" in host.distribution_ids:
        return None
    known = next((installs[name] for name in host.distribution_ids if name in installs), None)
    return known and f"{known} && {_START}"

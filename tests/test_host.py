"""What the operating system says about a machine, from systems laid out in a folder."""

from pathlib import Path

import pytest

from gpuwarm.machine import CudaCache, DeviceHolder, GpuNode, PersistenceDaemon
from gpuwarm.measure import host

UBUNTU_UNIT = """[Unit]
Description=NVIDIA Persistence Daemon

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""


def put(root: Path, path: str, content: str | bytes = "") -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return target


def link(root: Path, path: str, to: str) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(to)


def process(root: Path, pid: int, name: str, *handles: str, command: bytes = b"") -> None:
    put(root, f"proc/{pid}/comm", f"{name}\n")
    put(root, f"proc/{pid}/cmdline", command)
    (root / f"proc/{pid}/fd").mkdir()
    for number, target in enumerate(handles):
        link(root, f"proc/{pid}/fd/{number}", target)


def in_first_namespaces(root: Path) -> None:
    link(root, "proc/self/ns/pid", "pid:[4026531836]")
    link(root, "proc/self/ns/uts", "uts:[4026531838]")


def read(root: Path, **environment: str) -> host.HostState:
    return host.read(root, environment=environment, search_path=[str(root / "site-packages")])


def test_an_empty_system_is_unknown_not_fine(tmp_path: Path):
    seen = read(tmp_path)
    assert seen.distribution is None
    assert seen.uptime_s is None
    assert seen.memory_available_mib is None
    assert seen.cuda_cache is None
    assert seen.persistence_daemon == PersistenceDaemon()


def test_the_system_names_itself(tmp_path: Path):
    put(tmp_path, "etc/os-release", 'PRETTY_NAME="Rocky Linux 9.4"\nID="rocky"\nID_LIKE="rhel centos fedora"\n')
    put(tmp_path, "proc/sys/kernel/hostname", "node7\n")
    put(tmp_path, "proc/sys/kernel/osrelease", "5.14.0-427.el9.x86_64\n")
    put(tmp_path, "proc/uptime", "93.41 731.02\n")
    put(tmp_path, "proc/meminfo", "MemTotal:       65536 kB\nMemFree:   4 kB\nMemAvailable:    2048 kB\n")
    seen = read(tmp_path)
    assert (seen.hostname, seen.distribution) == ("node7", "Rocky Linux 9.4")
    assert seen.distribution_ids == ("rocky", "rhel", "centos", "fedora")
    assert seen.uptime_s == 93.41
    assert (seen.memory_total_mib, seen.memory_available_mib) == (64.0, 2.0)


def test_ubuntu_runs_the_daemon_without_persistence_mode(tmp_path: Path):
    command = b"/usr/bin/nvidia-persistenced\0--user\0nvidia-persistenced\0--no-persistence-mode\0"
    process(tmp_path, 812, "nvidia-persiste", "/dev/nvidiactl", command=command)
    put(tmp_path, "usr/lib/systemd/system/nvidia-persistenced.service", UBUNTU_UNIT)
    put(tmp_path, "var/run/nvidia-persistenced/socket")
    assert read(tmp_path).persistence_daemon == PersistenceDaemon(
        pid=812,
        command=("/usr/bin/nvidia-persistenced", "--user", "nvidia-persistenced", "--no-persistence-mode"),
        socket=True,
        unit="/usr/lib/systemd/system/nvidia-persistenced.service",
        unit_command="/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose",
    )


def test_drop_ins_apply_in_the_order_of_their_names_and_etc_wins_over_usr(tmp_path: Path):
    put(tmp_path, "usr/lib/systemd/system/nvidia-persistenced.service", UBUNTU_UNIT)
    drop_in = "systemd/system/nvidia-persistenced.service.d"
    put(tmp_path, f"usr/lib/{drop_in}/20-mode.conf", "[Service]\nExecStart=\nExecStart=/usr/bin/lost\n")
    put(tmp_path, f"etc/{drop_in}/20-mode.conf", "[Service]\nExecStart=\nExecStart=/opt/nvidia-persistenced \\\n -V\n")
    put(tmp_path, f"run/{drop_in}/10-first.conf", "[Service]\nNice=5\n")
    daemon = read(tmp_path).persistence_daemon
    assert daemon.unit_command == "/opt/nvidia-persistenced -V"
    assert daemon.drop_ins == (f"/run/{drop_in}/10-first.conf", f"/etc/{drop_in}/20-mode.conf")


def test_an_emptied_start_command_is_none(tmp_path: Path):
    put(tmp_path, "etc/systemd/system/nvidia-persistenced.service", "[Service]\nExecStart=/usr/bin/a\nExecStart=\n")
    assert read(tmp_path).persistence_daemon.unit_command is None


def test_a_masked_unit_is_seen_before_the_one_it_hides(tmp_path: Path):
    put(tmp_path, "usr/lib/systemd/system/nvidia-persistenced.service", UBUNTU_UNIT)
    link(tmp_path, "etc/systemd/system/nvidia-persistenced.service", "/dev/null")
    daemon = read(tmp_path).persistence_daemon
    assert daemon.masked
    assert daemon.unit == "/etc/systemd/system/nvidia-persistenced.service"


def test_only_handles_on_a_gpus_own_device_hold_it(tmp_path: Path):
    process(tmp_path, 31, "Xorg", "/dev/nvidia1", "/dev/nvidia0", "/dev/nvidia0", "/dev/tty7")
    process(tmp_path, 32, "dcgm", "/dev/nvidiactl", "/dev/nvidia-uvm")
    seen = read(tmp_path)
    assert seen.holders == (DeviceHolder(31, "Xorg", ("nvidia0", "nvidia1")),)
    assert seen.holders_complete


def test_a_process_without_a_list_of_handles_is_no_error(tmp_path: Path):
    put(tmp_path, "proc/77/comm", "gone\n")
    assert read(tmp_path).holders == ()


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        ((".dockerenv",), {}, "docker"),
        (("run/.containerenv",), {}, "podman"),
        ((".dockerenv",), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ((), {"APPTAINER_CONTAINER": "/images/trt.sif"}, "apptainer"),
        ((), {}, None),
    ],
)
def test_containers_are_recognised(
    tmp_path: Path, files: tuple[str, ...], environment: dict[str, str], expected: str | None
):
    for file in files:
        put(tmp_path, file)
    assert read(tmp_path, **environment).container == expected


def test_control_groups_name_a_container_that_left_no_file(tmp_path: Path):
    put(tmp_path, "proc/1/cgroup", "0::/kubepods.slice/kubepods-besteffort.slice\n")
    assert read(tmp_path).container == "kubernetes"


def test_systemd_names_the_container_it_runs_in(tmp_path: Path):
    put(tmp_path, "run/systemd/container", "lxc\n")
    assert read(tmp_path).container == "lxc"


def test_a_virtual_machine_made_from_an_image_is_no_container(tmp_path: Path):
    put(tmp_path, ".dockerenv")
    in_first_namespaces(tmp_path)
    assert read(tmp_path).container is None


def test_a_container_sees_what_its_limit_leaves_of_the_memory(tmp_path: Path):
    put(tmp_path, "proc/meminfo", "MemTotal:  16777216 kB\nMemAvailable:  8388608 kB\n")
    put(tmp_path, "sys/fs/cgroup/memory.max", f"{2048 << 20}\n")
    put(tmp_path, "sys/fs/cgroup/memory.current", f"{1536 << 20}\n")
    assert read(tmp_path).memory_available_mib == 512.0


def test_an_unlimited_control_group_leaves_all_memory(tmp_path: Path):
    put(tmp_path, "proc/meminfo", "MemTotal:  16777216 kB\nMemAvailable:  8388608 kB\n")
    put(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    put(tmp_path, "sys/fs/cgroup/memory.current", "123\n")
    assert read(tmp_path).memory_available_mib == 8192.0


def test_keys_and_tokens_in_the_environment_are_not_kept(tmp_path: Path):
    seen = read(tmp_path, CUDA_MODULE_LOADING="EAGER", NVIDIA_API_KEY="secret", PATH="/bin", NVIDIA_VISIBLE_DEVICES="0")
    assert seen.environment == {"CUDA_MODULE_LOADING": "EAGER", "NVIDIA_VISIBLE_DEVICES": "0"}


def test_runtime_power_management_is_read_per_gpu(tmp_path: Path):
    folder = "proc/driver/nvidia/gpus/0000:01:00.0"
    put(tmp_path, f"{folder}/information", "Model: \t\t NVIDIA RTX 4060 Laptop\nDevice Minor: \t 3\n")
    put(tmp_path, f"{folder}/power", "Runtime D3 status:          Enabled (fine-grained)\nVideo Memory:   Active\n")
    put(tmp_path, "sys/bus/pci/devices/0000:01:00.0/power/control", "auto\n")
    assert read(tmp_path).gpu_nodes == (GpuNode("0000:01:00.0", 3, "Enabled (fine-grained)", "auto"),)


def cache(root: Path, **environment: str) -> CudaCache:
    seen = read(root, **environment).cuda_cache
    assert seen is not None
    return seen


def test_the_cache_is_in_the_home_folder_unless_a_variable_says_where(tmp_path: Path):
    put(tmp_path, "home/ada/.nv/ComputeCache/1/entry", bytes(3 << 20))
    seen = cache(tmp_path, HOME="/home/ada")
    assert (seen.path, seen.exists, seen.writable) == ("/home/ada/.nv/ComputeCache", True, True)
    assert seen.used_mib == 3.0
    elsewhere = cache(tmp_path, HOME="/home/ada", CUDA_CACHE_PATH="/scratch/cache")
    assert (elsewhere.path, elsewhere.exists, elsewhere.used_mib) == ("/scratch/cache", False, None)


def test_the_cache_below_a_file_is_not_writable(tmp_path: Path):
    put(tmp_path, "scratch")
    assert cache(tmp_path, CUDA_CACHE_PATH="/scratch/cache").writable is False


MOUNTS = """21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 21 0:44 / /home rw,relatime shared:9 - nfs4 nas:/home rw
31 21 0:45 / /homework rw - tmpfs tmpfs rw
32 21 0:46 / /mnt/two\\040words ro - xfs /dev/sdb1 ro
"""


def test_the_caches_file_system_is_that_of_the_longest_mount_point(tmp_path: Path):
    put(tmp_path, "proc/self/mountinfo", MOUNTS)
    assert cache(tmp_path, HOME="/home/ada").file_system == "nfs4"
    assert cache(tmp_path, HOME="/homework").file_system == "tmpfs"
    assert cache(tmp_path, HOME="/root").file_system == "ext4"


def test_a_read_only_mount_is_not_writable_even_for_root(tmp_path: Path):
    put(tmp_path, "proc/self/mountinfo", MOUNTS)
    seen = cache(tmp_path, CUDA_CACHE_PATH="/mnt/two words/cache")
    assert (seen.file_system, seen.writable) == ("xfs", False)


def test_cpus_that_differ_are_both_named(tmp_path: Path):
    for number, governor in enumerate(("powersave", "performance", "powersave")):
        put(tmp_path, f"sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor", f"{governor}\n")
    put(tmp_path, "sys/devices/system/cpu/cpufreq/policy0/scaling_driver", "intel_pstate\n")
    seen = read(tmp_path)
    assert (seen.cpu_governor, seen.cpu_frequency_driver) == ("performance+powersave", "intel_pstate")


def test_runtimes_are_found_without_importing_them(tmp_path: Path):
    put(tmp_path, "site-packages/tensorrt_lean/__init__.py", "raise SystemExit('imported')")
    put(
        tmp_path,
        "site-packages/tensorrt_lean_cu13_bindings-10.16.1.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: tensorrt-lean-cu13-bindings\nVersion: 10.16.1\n",
    )
    seen = read(tmp_path)
    assert seen.runtimes == ("tensorrt_lean",)
    assert seen.packages == {"tensorrt-lean-cu13-bindings": "10.16.1"}

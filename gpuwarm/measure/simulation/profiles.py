"""What the simulated GPUs are like: every number planted in them, each with where it comes from.

"measured" means on an NVIDIA H200 with driver 580.159.04; "chosen" means that no measurement was at hand.
"""

from dataclasses import dataclass
from math import inf

GPU_IDLE, SW_POWER_CAP, SW_THERMAL = 0x1, 0x4, 0x20  # NVML's event-reason bits


@dataclass(frozen=True)
class Rung:
    """A performance level: what holds on it, and how long until the GPU leaves it."""

    pstate: int
    sm_clock_mhz: float
    mem_clock_mhz: float
    power_w: float  # with nothing running
    pcie_gen: int
    up_after_s: float = inf  # of work on it: to the next rung
    down_after_s: float = inf  # without work, while a context lives: to the rung below
    down_alone_s: float = inf  # without work and without a context


@dataclass(frozen=True)
class LoadStep:
    """What a workload does to a GPU on its top rung, from some time of sustained load on."""

    after_s: float
    sm_clock_mhz: float  # true: cycles over time
    nvml_clock_mhz: float  # what NVML says meanwhile; under a power cap it says more than is true
    power_w: float
    event_reasons: int = 0
    utilization: float = 0.98  # share of time with kernels running, back to back


@dataclass(frozen=True)
class Workload:
    """One inference: cycles on the SM clock, a part that waits for memory, and the host's share."""

    sm_kcycles: float
    memory_us: float  # at the top memory clock
    steps: tuple[LoadStep, ...]
    enqueue_us: float  # host, inside the enqueue call
    launch_us: float = 12.0  # from the enqueue's begin to the first kernel
    synchronise_us: float = 5.0  # from the last kernel to the host knowing it
    h2d_us: float = 2.0  # at the top PCIe generation
    d2h_us: float = 2.0
    first_gpu_us: float = 100.0  # more in the first inference, where kernels load lazily
    first_host_us: float = 200.0
    second_gpu_us: float = 5.0
    noise_pct: float = 0.4  # standard deviation of GPU time
    host_noise_pct: float = 4.0  # of enqueue times; chosen
    outliers: float = 0.0005  # share of iterations that take 1.2 to 2 times as long


@dataclass(frozen=True)
class Thermal:
    """Temperature = body + a part that follows power at once; the body follows power with one time constant."""

    ambient_c: float
    body_c_per_w: float
    junction_c_per_w: float
    time_constant_s: float
    knee_c: float = inf  # of the body: above it the busy clock falls a step every so many degrees
    c_per_step: float = 1.0
    step_mhz: float = 15.0  # NVIDIA's clocks come in steps of 15 MHz


@dataclass(frozen=True)
class Sensors:
    """How NVML tells the state: late and on a grid."""

    refresh_ms: float = 100.0  # measured
    lag_ms: float = 50.0  # of clocks and reasons, on top of the grid; measured: 50 to 150 ms in all
    utilization_ms: float = 200.0  # measured: window and refresh
    average_s: float | None = 1.0  # window of the power average, measured; None: not supported
    memory_temperature: bool = True
    clock_noise_mhz: float = 15.0  # measured: readings under load go one step up and down
    power_noise_pct: float = 2.0  # measured under the cap: 663 to 719 W


@dataclass(frozen=True)
class ColdStep:
    """How long a step of a cold start takes, and what changes that."""

    name: str
    ms: float
    eager_ms: float = 0.0  # more where CUDA_MODULE_LOADING=EAGER
    beside_context_ms: float = 0.0  # more while another process has a context; negative: less
    compile_ms: float = 0.0  # more where its PTX is compiled and CUDA's cache does not hold the result yet


@dataclass(frozen=True)
class Profile:
    """A GPU and the software that runs on it."""

    gpu: str
    persistence: bool
    driver_load_s: float  # paid by a client that comes when no other holds the driver and persistence is off
    ladder: tuple[Rung, ...]
    context_rung: int  # to which a context lifts the GPU at once, and below which it does not fall while one lives
    recover_s: float  # of rest, after which a power cap starts anew
    thermal: Thermal
    power_limit_w: float
    mem_clock_max_mhz: float
    sm_clock_max_mhz: float
    memory_mib: float
    compute_capability: str
    workloads: dict[str, Workload]
    cold_start: tuple[ColdStep, ...]
    sensors: Sensors = Sensors()
    display: bool = False
    forget_s: float = 0.1  # of rest, after which work towards the next rung counts anew; chosen
    stamps_ms: float = 35.0  # to load the SM-clock stamps; measured
    cold_noise_pct: float = 4.0  # standard deviation of a cold step; measured over three starts


def _cold_start(
    *, driver_init_ms: float, context_ms: float, eager_ms: float, beside_context_ms: float = 0.0
) -> tuple[ColdStep, ...]:
    """The steps after Python's own start; all but the arguments as measured with TensorRT 8.6's lean runtime."""
    return (
        ColdStep("cuda_import", 90.0),  # chosen: the measured 250 ms begin with the process
        ColdStep("driver_init", driver_init_ms),
        ColdStep("context", context_ms, beside_context_ms=beside_context_ms),
        ColdStep("tensorrt_import", 14.0),
        ColdStep("runtime", 2.6, eager_ms=eager_ms),
        ColdStep("deserialise", 16.0),
        ColdStep("execution_context", 6.5),
        ColdStep("buffers", 0.6),
    )


# Measured: 345 MHz without a context, 1980 with one, busy or not; 480, 435, 405, 360, 345 in 200 ms steps after it.
# At rest 80 W, 124 W with a context (after work).
_H200_LADDER = (
    Rung(0, 345, 3201, 80, 5),
    Rung(0, 360, 3201, 82, 5, down_alone_s=0.2),
    Rung(0, 405, 3201, 82, 5, down_alone_s=0.2),
    Rung(0, 435, 3201, 83, 5, down_alone_s=0.2),
    Rung(0, 480, 3201, 85, 5, down_alone_s=0.2),
    Rung(0, 1980, 3201, 124, 5, down_alone_s=0.05),
)
# Measured medians: GPU time, clock on the GPU and from NVML, power. heavy: 2.64 ms at 1808 MHz, 2.79 at 1704 from
# 48 ms on, 2.84 at 1660 from 98 ms on: 85 % of it follows the SM clock.
_H200_WORKLOADS = {
    "tiny": Workload(
        sm_kcycles=49.5,  # 25 us at 1980 MHz; how much of the 35 us follows the clock is chosen
        memory_us=10.0,
        steps=(LoadStep(0, 1980, 1980, 127, utilization=0.5),),
        enqueue_us=52.0,
        launch_us=15.0,
        first_gpu_us=80.0,
        first_host_us=180.0,
        noise_pct=5.0,
        outliers=0.004,
    ),
    "medium": Workload(
        sm_kcycles=223.0,  # 120 us at 1858 MHz; chosen likewise, of 150 us
        memory_us=30.0,
        steps=(LoadStep(0, 1858, 1980, 350, utilization=0.86),),
        enqueue_us=90.0,
        h2d_us=12.0,
        d2h_us=3.0,
        first_gpu_us=135.0,
        first_host_us=270.0,
        noise_pct=2.5,
    ),
    "heavy": Workload(
        sm_kcycles=4057.0,
        memory_us=396.0,
        steps=(
            LoadStep(0, 1808, 1845, 600),
            LoadStep(0.048, 1704, 1830, 600, SW_POWER_CAP),
            LoadStep(0.098, 1660, 1830, 600, SW_POWER_CAP),
        ),
        enqueue_us=200.0,
        launch_us=20.0,
        h2d_us=365.0,
        d2h_us=5.6,
        second_gpu_us=50.0,
    ),
}

H200 = Profile(
    gpu="H200",
    persistence=True,
    driver_load_s=0.0,
    ladder=_H200_LADDER,
    context_rung=5,
    recover_s=0.15,  # measured: after 50 ms of rest still capped, after 200 ms not
    thermal=Thermal(35.6, 0.016, 0.014, 0.6),  # measured: 38 C at 80 W, 54 C at 600 W, half of it within 0.1 s
    power_limit_w=700,
    mem_clock_max_mhz=3201,
    sm_clock_max_mhz=1980,
    memory_mib=143_771,
    compute_capability="9.0",
    workloads=_H200_WORKLOADS,
    # Eager loading was measured at 37 s with full TensorRT; a simulated study would only wait for it.
    cold_start=_cold_start(driver_init_ms=190, context_ms=135, eager_ms=1500),
)

# An RTX 2080 SUPER under Linux: idle P8 300/405 MHz at 39 W, 765/810 caught on the way up, loaded P2 2055/7500 MHz.
# A TITAN RTX took 210 ms of inference at 0.346 ms to 0.268, and 30 ms more to 0.259; the split of the 210 ms is chosen.
# An RTX 3070 held its clock about 18 s after an inference; an L40S without a context its memory clock 3 s.
_GEFORCE_LADDER = (
    Rung(8, 300, 405, 39, 1, up_after_s=0.03),
    Rung(5, 765, 810, 42, 1, up_after_s=0.07, down_after_s=3.0, down_alone_s=1.0),
    Rung(3, 1350, 5001, 50, 2, up_after_s=0.11, down_after_s=2.0, down_alone_s=1.0),
    Rung(2, 1980, 7500, 60, 3, up_after_s=0.03, down_after_s=17.5, down_alone_s=0.5),
    Rung(2, 2055, 7500, 62, 3, down_after_s=0.5, down_alone_s=0.5),
)
GEFORCE = Profile(
    gpu="GeForce",
    persistence=False,
    driver_load_s=0.0,  # the desktop holds the driver
    ladder=_GEFORCE_LADDER,
    context_rung=0,
    recover_s=0.15,
    thermal=Thermal(31.0, 0.15, 0.08, 20.0),  # 40 C at 39 W as captured; the rest chosen
    power_limit_w=250,
    mem_clock_max_mhz=7751,
    sm_clock_max_mhz=2145,
    memory_mib=8192,
    compute_capability="7.5",
    # Times chosen: a card of a quarter of an H200's speed.
    workloads={
        "tiny": Workload(102.75, 10.0, (LoadStep(0, 2055, 2055, 95),), 40.0, noise_pct=3.0, outliers=0.002),
        "medium": Workload(925.0, 150.0, (LoadStep(0, 2055, 2055, 150),), 90.0, h2d_us=25.0, noise_pct=1.0),
        "heavy": Workload(16_440.0, 2000.0, (LoadStep(0, 2055, 2055, 230),), 200.0, h2d_us=800.0, d2h_us=10.0),
    },
    cold_start=_cold_start(driver_init_ms=120, context_ms=160, eager_ms=900, beside_context_ms=-40),
    sensors=Sensors(refresh_ms=20.0, lag_ms=20.0, average_s=None, memory_temperature=False),  # times chosen
    display=True,
)

# A laptop log: 210 MHz and 2 W at rest, 1890 MHz and 10 W with a context, 2040 MHz at 56 W when it starts working,
# 1500 MHz at 85 C. There the heat took five minutes; the time constant here is a tenth, to show in a run of seconds.
LAPTOP = Profile(
    gpu="Laptop",
    persistence=False,
    driver_load_s=0.0,
    ladder=(
        Rung(8, 210, 405, 2, 1),
        Rung(0, 1890, 8001, 10.5, 4, down_alone_s=2.0),
    ),
    context_rung=1,
    recover_s=0.15,
    thermal=Thermal(51.5, 0.6, 0.15, 12.0, knee_c=58.0, c_per_step=0.8),
    power_limit_w=60,
    mem_clock_max_mhz=8001,
    sm_clock_max_mhz=3105,
    memory_mib=8188,
    compute_capability="8.9",
    workloads={
        "tiny": Workload(102.0, 10.0, (LoadStep(0, 2040, 2040, 25),), 60.0, noise_pct=3.0, outliers=0.002),
        "medium": Workload(1020.0, 120.0, (LoadStep(0, 2040, 2040, 45),), 100.0, h2d_us=25.0, noise_pct=1.0),
        "heavy": Workload(20_400.0, 2000.0, (LoadStep(0, 2040, 2040, 56),), 220.0, h2d_us=900.0, d2h_us=10.0),
    },
    cold_start=_cold_start(driver_init_ms=150, context_ms=180, eager_ms=900),
    sensors=Sensors(memory_temperature=False),
    display=True,
)

# An A100 without persistence: 210 MHz in P0 at rest and 1410 MHz as in a log of eight; 3.2 s to load the driver
# against 0.09 s as one report has it (NVIDIA says 1 to 3 s a GPU).
COLD_DRIVER = Profile(
    gpu="A100, persistence off",
    persistence=False,
    driver_load_s=3.2,
    ladder=(Rung(0, 210, 1593, 56, 4), Rung(0, 1410, 1593, 80, 4, down_alone_s=0.5)),
    context_rung=1,
    recover_s=0.15,
    thermal=Thermal(30.0, 0.03, 0.02, 2.0),
    power_limit_w=400,
    mem_clock_max_mhz=1593,
    sm_clock_max_mhz=1410,
    memory_mib=81_920,
    compute_capability="8.0",
    workloads={
        "tiny": Workload(56.4, 10.0, (LoadStep(0, 1410, 1410, 95),), 52.0, noise_pct=3.0, outliers=0.002),
        "medium": Workload(352.5, 60.0, (LoadStep(0, 1410, 1410, 220),), 95.0, h2d_us=15.0, noise_pct=1.0),
        "heavy": Workload(7050.0, 900.0, (LoadStep(0, 1410, 1410, 330),), 200.0, h2d_us=400.0, d2h_us=6.0),
    },
    cold_start=_cold_start(driver_init_ms=190, context_ms=140, eager_ms=1200),
)

PROFILES = {"geforce": GEFORCE, "h200": H200, "laptop": LAPTOP, "cold-driver": COLD_DRIVER}

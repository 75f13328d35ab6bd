"""The arms that `explain` compares and what each comparison is about, in words."""

from dataclasses import dataclass

# Arms: how a start was made.
REFERENCE = "reference"  # from rest, engine file in memory, nothing to compile, sampled
FIRST = "first"  # fills caches; compared with nothing
EAGER, LAZY = "eager", "lazy"  # whichever the reference is not
JIT_FORBIDDEN, JIT_CACHE_EMPTY = "jit-forbidden", "jit-cache-empty"
FILE_DROPPED = "file-dropped"
DRIVER_FREE, DRIVER_HELD = "driver-free", "driver-held"  # both without sampling, as that holds the driver
BESIDE_CONTEXT = "beside-context"
PREDECESSOR = "predecessor"  # from rest; compared with nothing
BACK_TO_BACK = "back-to-back"  # begins as its predecessor ends
ALL_COLD = "all-cold"  # driver free, file dropped, cache empty at once; without sampling


@dataclass(frozen=True)
class Remedy:
    """What to do, and the line that does it; printed, never run."""

    advice: str
    command: str | None = None


@dataclass(frozen=True)
class Switch:
    """One cause: what is compared, and how it is called."""

    id: str  # as --only takes it
    cause: str  # what the effect is the effect of
    does: str  # what switching does
    present: tuple[str, ...]  # arms with the cause, the first of them that was run is taken
    absent: tuple[str, ...]
    where_it_costs: Remedy
    where_it_saves: Remedy | None = None


SWITCHES = (  # the most telling first
    Switch(
        "module-loading",
        "loading all modules at once",
        "CUDA_MODULE_LOADING: EAGER loads all kernels of every library as it is opened, LAZY each at its first use",
        (EAGER, REFERENCE),
        (LAZY, REFERENCE),
        Remedy(
            "load modules lazily, and run one inference of each input shape before serving, so that no user waits for "
            "what is loaded at first use",
            "export CUDA_MODULE_LOADING=LAZY",
        ),
        Remedy("load modules as the process starts", "export CUDA_MODULE_LOADING=EAGER"),
    ),
    Switch(
        "ptx-jit",
        "compiling PTX",
        "CUDA_DISABLE_PTX_JIT=1 forbids it; where a start then fails, an empty CUDA_CACHE_PATH of our own is compared "
        "with a filled one",
        (JIT_CACHE_EMPTY,),
        (REFERENCE,),
        Remedy(
            "build for this GPU's compute capability, or keep CUDA's cache where it outlives process and container",
            "export CUDA_CACHE_PATH=/var/tmp/$USER/ComputeCache CUDA_CACHE_MAXSIZE=4294967296",
        ),
    ),
    Switch(
        "engine-file",
        "reading the engine file from disk",
        "a copy of the engine file is dropped from memory before each start, instead of lying there",
        (FILE_DROPPED,),
        (REFERENCE,),
        Remedy("read the engine file into memory before it is needed, as at boot", "cat ENGINE > /dev/null"),
    ),
    Switch(
        "driver",
        "loading the driver",
        "no process of ours holds the driver, instead of one that does; neither is sampled",
        (DRIVER_FREE,),
        (DRIVER_HELD,),
        Remedy("keep the driver loaded: turn persistence mode on", "gpuwarm check --about persistence-off"),
    ),
    Switch(
        "other-context",
        "a context alive in another process",
        "another process has made a CUDA context and does nothing with it",
        (BESIDE_CONTEXT,),
        (REFERENCE,),
        Remedy("let no other process keep a CUDA context on this GPU"),
        Remedy("keep one process with a CUDA context alive on this GPU, or load the engine in one that stays"),
    ),
    Switch(
        "rest",
        "starting from rest",
        "the GPU is back at rest, instead of a start right after another process's work",
        (REFERENCE,),
        (BACK_TO_BACK,),
        Remedy("keep the GPU from resting; `gpuwarm idle` says what does that here", "gpuwarm idle MODEL"),
    ),
)

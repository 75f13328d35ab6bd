"""Watch a GPU while it is measured: the sampler process, and through its rows whether the GPU is at rest."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec

from gpuwarm.errors import GpuwarmError
from gpuwarm.measure import child
from gpuwarm.measure.sampler import SamplerSpec, reader
from gpuwarm.metadata import Rest, Sampling
from gpuwarm.recording import sample_files
from gpuwarm.rows import SAMPLE_FIELDS, SampleRow, last_row
from gpuwarm.studies.device import Device

POLL_S = 0.05
SAMPLER_READY_S = 20.0  # a driver that has to load first takes seconds
STALE_S = 2.0  # a sample older than this is not a look at the GPU now
LOOK_S = 1.0  # a clock that has not moved for this long is at rest: decays seen move every 0.2 s
LOOK_LIMIT_S = 6.0  # a GPU that others keep busy never rests; what is seen by then is the reference
STEADY_REST_S = 0.3  # rest must hold this long: NVML reads up to 0.25 s late
CLOCK_MARGIN = 1.02  # of the clock at first sight, plus one step: resting clocks wobble
CLOCK_STEP_MHZ = 15.0
TEMPERATURE_MARGIN_C = 5.0
UNSEEN_REST_S = 2.0  # without a sampler rest cannot be seen: twice the decay seen on an H200


@dataclass(frozen=True)
class _Look:
    """The GPU's state in the newest sample; NaN where it cannot be read."""

    sm_clock_mhz: float
    pstate: float
    temperature_c: float

    def moved_from(self, other: "_Look") -> bool:
        """Whether clock or P-state differ; what cannot be read has not moved."""
        return abs(self.sm_clock_mhz - other.sm_clock_mhz) > 0 or abs(self.pstate - other.pstate) > 0

    def at_rest(self, reference: "_Look") -> bool:
        """Whether this is no warmer than the reference; what cannot be read does not count against it."""
        fast = self.sm_clock_mhz > reference.sm_clock_mhz * CLOCK_MARGIN + CLOCK_STEP_MHZ
        awake = self.pstate < reference.pstate
        hot = self.temperature_c > reference.temperature_c + TEMPERATURE_MARGIN_C
        return not (fast or awake or hot)

    def visible(self) -> bool:
        """Whether rest can be told at all."""
        return not (math.isnan(self.sm_clock_mhz) and math.isnan(self.pstate))


_UNSEEN = _Look(math.nan, math.nan, math.nan)


class Watch:
    """A running sampler and the GPU's state at first sight."""

    def __init__(self, device: Device, part: Path, period_ms: float | None) -> None:
        """Start sampling into `part` and learn what this GPU looks like at rest.

        Raises:
            DeviceError: the sampler cannot read the GPU.
            GpuwarmError: it ended at once, and how.
        """
        self._part = part
        self._died = False
        self._spec = SamplerSpec(
            folder=str(part),
            gpu=device.gpu,
            simulate=device.simulate,
            load_log=device.load_log,
            period_ms=period_ms,
        )
        self._rows = part / "samples.rows"
        self._reference = self._first_sight(self._start())

    def begin_again(self) -> None:
        """Sample on after the sampler has died; rest means what it did before.

        Raises:
            DeviceError, GpuwarmError: as when it was begun; or it dies for the second time.
        """
        if self._died:
            raise GpuwarmError("the process that samples has died twice: see the notes for how, and measure again")
        self._died = True
        self._start()

    def _start(self) -> _Look:
        """Start a sampler; what it sees first."""
        if self._rows.exists():  # of one that died
            self._rows.rename(self._part / f"samples-{len(sample_files(self._part))}.rows")
        self._sampler = child.start("gpuwarm.measure.sampler:run", self._spec, stem=self._part / "sampler")
        deadline = time.monotonic() + SAMPLER_READY_S
        while (look := self._look()) is None:
            if not self.alive():
                self._sampler.wait()
            if time.monotonic() > deadline:
                self._sampler.end()
                raise GpuwarmError(f"the GPU gave no reading within {SAMPLER_READY_S:.0f} s: does nvidia-smi answer?")
            time.sleep(POLL_S)
        return look

    def alive(self) -> bool:
        """Whether the sampler still samples."""
        return self._sampler.alive()

    def end(self) -> Sampling:
        """Stop sampling; what the sampler says of itself.

        Raises:
            GpuwarmError: it had died before, and how.
        """
        self._sampler.end()
        return msgspec.json.decode(self._sampler.wait(), type=Sampling)

    def settle(self, timeout_s: float) -> Rest:
        """Wait until the GPU is back where it was at first sight, or until the time is over."""
        begin = time.monotonic()
        rested_since: float | None = None
        reached = False
        look = self._look()
        while self.alive() and (now := time.monotonic()) < begin + timeout_s:
            if look is None or not look.at_rest(self._reference):
                rested_since = None
            elif rested_since is None:
                rested_since = now
            elif now - rested_since >= STEADY_REST_S:
                reached = look.visible()
                break
            time.sleep(POLL_S)
            look = self._look()
        seen = look or _UNSEEN
        return Rest(
            reached=reached,
            waited_s=round(time.monotonic() - begin, 3),
            sm_clock_mhz=_known(seen.sm_clock_mhz),
            pstate=None if math.isnan(seen.pstate) else int(seen.pstate),
            temperature_c=_known(seen.temperature_c),
            reference_sm_clock_mhz=_known(self._reference.sm_clock_mhz),
            reference_temperature_c=_known(self._reference.temperature_c),
        )

    def _look(self) -> _Look | None:
        row = last_row(self._rows, SAMPLE_FIELDS)
        if row is None:
            return None
        sample = dict(zip(SAMPLE_FIELDS, row, strict=True))
        if time.monotonic_ns() - sample["t_ns"] > STALE_S * 1e9:
            return None
        return _Look(sample["sm_clock_mhz"], sample["pstate"], sample["temperature_c"])

    def _first_sight(self, look: _Look) -> _Look:
        """The state once the clock has stopped moving: opening the driver may itself have raised it."""
        begin = since = time.monotonic()
        while time.monotonic() < min(begin + LOOK_LIMIT_S, since + LOOK_S):
            time.sleep(POLL_S)
            now = self._look()
            if now is not None and now.moved_from(look):
                look, since = now, time.monotonic()
        return look


def readings(
    device: Device,
    period_s: float,
    duration_s: float | None,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[SampleRow]:
    """The GPU's state each so often, from now on; for ever where `duration_s` is None.

    Raises:
        DeviceError: it cannot be read, or is lost.
    """
    with reader(device.gpu, device.simulate, device.load_log) as read:
        began = clock()
        for number in count():
            if duration_s is not None and number * period_s > duration_s:
                return
            sleep(max(0.0, began + number * period_s - clock()))
            yield read()


def unwatched_rest() -> Rest:
    """Rest that nobody looks at, so that no client of ours keeps the driver loaded."""
    time.sleep(UNSEEN_REST_S)
    return Rest(reached=False, waited_s=UNSEEN_REST_S)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value

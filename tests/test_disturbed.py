"""`explain` and `idle` while something from outside disturbs them: they say so, and make again what it cost."""

import os
import signal
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from running import Running, children, wait_until

from gpuwarm.analysis.explained import Explanation
from gpuwarm.analysis.explained import explain as explained
from gpuwarm.analysis.idled import idleness
from gpuwarm.errors import GpuwarmError
from gpuwarm.measure.simulation.load_log import CONTEXT, Entry, LoadLog
from gpuwarm.recording import Recording
from gpuwarm.show.explanation import sections
from gpuwarm.studies import explain, idle
from gpuwarm.studies.device import Device, simulated_device
from gpuwarm.studies.prepare import Model

WORKER, SAMPLER, HOLDER = "start:run", "sampler:run", "holder:hold"


class Killer:
    """Kills a child of a measurement while a worker runs, once for each word that its progress holds."""

    def __init__(self, output: Path, victims: dict[str, str]) -> None:
        self.output = output
        self.victims = victims

    def __call__(self, sentence: str) -> None:
        for word in [word for word in self.victims if word in sentence]:
            self.during(WORKER, self.victims.pop(word))

    def during(self, worker: str, victim: str) -> None:
        threading.Thread(target=self._kill, args=(worker, victim), daemon=True).start()

    def _kill(self, worker: str, victim: str) -> None:
        assert wait_until(lambda: children(self.output, worker))
        os.kill(children(self.output, victim)[0], signal.SIGKILL)


def simulated(output: Path) -> Device:
    return simulated_device("h200", output.with_suffix(".part") / "load")


def explain_tiny(output: Path, killer: Killer, *only: str) -> Recording:
    protocol = explain.Protocol(repeats=2, only=only, steady_s=0.1, settle_timeout_s=0.1)
    return explain.explain(
        simulated(output), Model(path="tiny"), protocol, output=output, command="gpuwarm explain", progress=killer
    )


def idle_tiny(device: Device, output: Path, killer: Killer) -> Recording:
    protocol = idle.Protocol(max_gap_s=0.003, repeats=3, warm_s=0.05, burst_s=0.05, settle_timeout_s=0.1)
    return idle.idle(device, Model(path="tiny"), protocol, output=output, command="gpuwarm idle", progress=killer)


def said(found: Explanation) -> str:
    return " ".join(line.text for section in sections(found) for line in section.lines)


def test_children_of_explain_that_are_killed_cost_the_start_they_belong_to_which_is_made_again(tmp_path: Path):
    output = tmp_path / "a.npz"
    killer = Killer(output, {": first": WORKER, ": reference": SAMPLER, ": beside-context": HOLDER})
    found = explained(explain_tiny(output, killer, "other-context"))
    assert not killer.victims
    assert (found.starts, found.disturbed, found.made_again) == (8, 3, 3)
    assert "3 of 8 starts left out, 3 made again" in said(found)
    assert set(found.notes[:4]) == {
        "1 of 8 starts left out: cut short",
        "1 of 8 starts left out: the process that samples had ended early",
        "1 of 8 starts left out: gpuwarm's process beside it had ended early",
        "3 starts made again in place of those",
    }
    cause = next(each for each in found.causes if each.id == "other-context")
    assert (cause.starts_with, cause.starts_without) == (2, 2)
    assert list(tmp_path.iterdir()) == [output]


def test_a_worker_killed_by_chance_proves_no_compilation_and_no_start_follows_one_that_warmed_nothing(tmp_path: Path):
    output = tmp_path / "a.npz"
    killer = Killer(output, {": back-to-back": WORKER})
    killer.during("start-1", "start-1")  # the one that may not compile
    recording = explain_tiny(output, killer, "ptx-jit", "rest")
    found = explained(recording)
    by_id = {cause.id: cause for cause in found.causes}
    assert by_id["ptx-jit"].status == "ruled_out"
    arms = Counter(start.arm for start in recording.meta.starts)
    assert (arms["predecessor"], arms["back-to-back"], by_id["rest"].starts_without) == (3, 2, 2)
    assert (found.disturbed, found.made_again) == (1, 1)


def test_a_sampler_that_dies_twice_ends_a_study_that_keeps_what_it_has(tmp_path: Path):
    output = tmp_path / "a.npz"
    with pytest.raises(GpuwarmError, match="died twice"):
        explain_tiny(output, Killer(output, {": first": SAMPLER, ": reference": SAMPLER}), "other-context")
    notes = Recording.load(output).meta.notes
    assert sum("SIGKILL" in note for note in notes) == 2
    assert "died twice" in notes[-1]
    assert not children(output)


def test_pauses_that_a_kill_or_heat_or_a_neighbour_disturbed_are_made_again(tmp_path: Path):
    output = tmp_path / "a.npz"
    quiet = simulated(output)
    calls, neighbour = [], list[Entry]()

    def counters_us() -> dict[str, int]:
        """Before and after each start: the second ends in heat, the third beside another process."""
        calls.append(len(calls))
        if len(calls) == 6:
            neighbour.append(LoadLog(output.with_suffix(".part") / "load").join())
            neighbour[0].open(CONTEXT, 1)
        elif len(calls) == 7:
            neighbour[0].leave()
        return {**quiet.counters_us(), "sw_thermal_slowdown": 0 if len(calls) < 4 else 1000}

    killer = Killer(output, {"round 1": WORKER, "a small kernel": SAMPLER})
    recording = idle_tiny(replace(quiet, counters_us=counters_us), output, killer)
    found = idleness(recording)
    assert (found.disturbed, found.made_again) == (4, 4)
    reasons = [note.split(": ")[1] for note in found.notes if "left out" in note]
    assert reasons[:2] == ["cut short", "heat or the power supply held the clock down"]
    assert "had come to this GPU" in reasons[2]
    assert reasons[3] == "the process that samples had ended early"
    assert {after.pauses for situation in found.situations for after in situation.after} == {3}
    assert list(tmp_path.iterdir()) == [output]


def test_sigkill_of_idle_leaves_no_process_and_a_folder_that_loads(tmp_path: Path):
    running = Running(tmp_path, "idle", "tiny", "--max-gap", "0.003", "--repeats", "3", "--no-report")
    running.wait_for(WORKER)
    running.process.kill()
    running.process.communicate()
    assert running.no_child_left()
    assert Recording.load(running.output.with_suffix(".part")).meta.study.name == "idle"
    assert [path.name for path in tmp_path.iterdir()] == ["a.part"]

"""The JSON schemas beside the package say what check, fleet and compare print, every key of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import measured
import numpy as np
import pytest

import gpuwarm
from gpuwarm.analysis import checks, compare, fleet
from gpuwarm.analysis.checks import report
from gpuwarm.analysis.contract import json_schema
from gpuwarm.machine import GpuState, MachineState
from tests.test_checks import GEFORCE, H100, from_file, live

DATA = Path(gpuwarm.__file__).parent / "data"
CHECK = {
    "schema", "source", "platform", "driver_version", "cuda_version", "nvidia_smi_version", "host", "verdict", "gpus",
    "findings",
}  # fmt: skip
GPU = {
    "index", "name", "uuid", "persistence_mode", "pstate", "sm_clock_mhz", "sm_clock_max_mhz", "mem_clock_mhz",
    "mem_clock_max_mhz", "power_w", "power_limit_w", "power_limit_default_w", "temperature_c", "utilization_pct",
    "memory_used_mib", "memory_total_mib", "mig_mode", "driver_model", "compute_mode", "display_active",
    "event_reasons", "event_reason_counters_us", "pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max",
    "processes",
}  # fmt: skip
FINDING = {"id", "severity", "gpu", "summary", "evidence", "advice", "command"}


def has_the_keys(value: Any, schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Whether each object in JSON has the keys that its schema names, and no other."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in schema:
        return value is None or has_the_keys(value, schema["anyOf"][0], definitions)
    if isinstance(value, list) and "items" in schema and schema["items"]:
        return all(has_the_keys(part, schema["items"], definitions) for part in value)
    if "properties" not in schema:
        return True
    of_keys = schema["properties"]
    return value.keys() == of_keys.keys() == set(schema["required"]) and all(
        has_the_keys(value[key], of_keys[key], definitions) for key in value
    )


def printed(machine: MachineState) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(report.encode(report.report(machine, checks.findings(machine))))
    return content


MACHINES = [
    from_file(GpuState()),
    from_file(GpuState(index=3, trouble="GPU is lost"), platform="unknown"),
    live(H100, replace(GEFORCE, index=1, mig_mode="enabled", mig_devices=0)),
]


@pytest.mark.parametrize("machine", MACHINES)
def test_check_prints_every_key_of_its_schema(machine: MachineState):
    schema = json_schema(report.Report, report.SCHEMA)
    content = printed(machine)
    assert has_the_keys(content, schema, schema["$defs"])
    assert content.keys() >= CHECK
    assert all(gpu.keys() >= GPU for gpu in content["gpus"])
    assert all(finding.keys() == FINDING for finding in content["findings"])


def test_what_a_report_read_again_lacks_is_null():
    few = b'{"schema":"gpuwarm.check/1","source":"x","platform":"linux","driver_version":null,"cuda_version":null,'
    few += b'"nvidia_smi_version":null,"host":{},"verdict":"ok","gpus":[{}],"findings":[]}'
    again = printed(report.machine(report.decode(few, "x"), "x"))
    assert (again["gpus"][0]["power_w"], again["host"]["kernel"]) == (None, None)


def test_what_is_unknown_is_null_and_never_zero():
    (gpu,) = printed(MACHINES[0])["gpus"]
    known = {"index": 0, "persistence_mode": "unknown", "event_reason_counters_us": {}}
    assert {key: value for key, value in gpu.items() if value is not None} == known


def test_fleet_merge_prints_every_key_of_its_schema():
    reports = {f"{number}": report.report(machine, checks.findings(machine)) for number, machine in enumerate(MACHINES)}
    for number in range(2):
        gpus = tuple(replace(gpu, uuid=f"GPU-{number}") for gpu in MACHINES[2].gpus)
        reports[f"node{number}"] = replace(reports["2"], gpus=gpus, driver_version="550.54.14")
    schema = json_schema(fleet.Fleet, fleet.SCHEMA)
    content = json.loads(fleet.encode(fleet.merge(reports, unreadable=["x.json"])))
    assert content["odd"]
    assert has_the_keys(content, schema, schema["$defs"])


def test_compare_prints_every_key_of_its_schema():
    slower = measured.recording(*[measured.inference(n, measured.noisy(np.full(1500, 2.2), seed=n)) for n in range(3)])
    slower = replace(slower, meta=replace(slower.meta, versions={"driver": "590.1"}))
    schema = json_schema(compare.Comparison, compare.SCHEMA)
    for pair in ((measured.flat(), slower), (measured.flat(), measured.recording())):
        content = json.loads(json.dumps(compare.to_json(compare.compare(*pair, sources=("a", "b"))), allow_nan=False))
        assert has_the_keys(content, schema, schema["$defs"])


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ((), {}),
        (("gpus", 0), {"name": "H100"}),
        (("host", "cuda_cache"), {"path": "/tmp"}),
        (("findings", 0), {"x": 1}),
    ],
)
def test_a_key_that_is_not_there_is_seen(path: tuple[str | int, ...], content: dict[str, Any]):
    schema = json_schema(report.Report, report.SCHEMA)
    broken: Any = {"": printed(MACHINES[2])}
    place = broken
    for key in ("", *path)[:-1]:
        place = place[key]
    place[("", *path)[-1]] = content
    assert not has_the_keys(broken[""], schema, schema["$defs"])


@pytest.mark.parametrize(
    ("file", "kind", "name"),
    [
        ("check-1.schema.json", report.Report, report.SCHEMA),
        ("compare-1.schema.json", compare.Comparison, compare.SCHEMA),
        ("fleet-1.schema.json", fleet.Fleet, fleet.SCHEMA),
    ],
)
def test_the_schema_in_the_package_is_that_of_the_dataclasses(file: str, kind: type, name: str):
    written = json.loads((DATA / file).read_text())
    assert written == json_schema(kind, name), "after a change of the contract run: python scripts/write_schemas.py"

"""Write the JSON schemas that the package ships, after a change of what commands print as JSON."""

import json
from pathlib import Path
from typing import Any

import gpuwarm
from gpuwarm.analysis import advice, compare, explained, fleet, idled
from gpuwarm.analysis.checks import report
from gpuwarm.analysis.contract import json_schema
from gpuwarm.show import live


def schemas() -> dict[str, dict[str, Any]]:
    """Of each file its content."""
    return {
        "advice-1.schema.json": advice.json_schema(),
        "check-1.schema.json": json_schema(report.Report, report.SCHEMA),
        "compare-1.schema.json": json_schema(compare.Comparison, compare.SCHEMA),
        "explain-1.schema.json": json_schema(explained.Explanation, explained.SCHEMA),
        "fleet-1.schema.json": json_schema(fleet.Fleet, fleet.SCHEMA),
        "idle-1.schema.json": json_schema(idled.Idleness, idled.SCHEMA),
        "watch-1.schema.json": json_schema(live.Reading, live.SCHEMA),
    }


def main() -> None:
    """One file a schema, named by what it describes."""
    for name, schema in schemas().items():
        path = Path(gpuwarm.__file__).parent / "data" / name
        path.write_text(json.dumps(schema, indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    main()

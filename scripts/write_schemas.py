"""Write the JSON schemas that the package ships, after a change of what commands print as JSON."""

import json
from pathlib import Path

import gpuwarm
from gpuwarm.analysis import advice


def main() -> None:
    """One file a schema, named by what it describes."""
    path = Path(gpuwarm.__file__).parent / "data" / "advice-1.schema.json"
    path.write_text(json.dumps(advice.json_schema(), indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()

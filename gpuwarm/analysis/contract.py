"""The JSON Schema of what commands print, made from the dataclasses that they print."""

from typing import Any

import msgspec


def json_schema(printed: type, name: str) -> dict[str, Any]:
    """Of a dataclass that is written whole, under the name that its key `schema` has."""
    schema = msgspec.json.schema(printed)
    properties = schema["$defs"][printed.__name__]["properties"]
    schema["$defs"][printed.__name__]["properties"] = properties | {"schema": {"const": name}}
    return with_every_key(schema)


def with_every_key(schema: dict[str, Any]) -> dict[str, Any]:
    """The same, where every key is always written: nothing is left to a default."""
    for definition in schema["$defs"].values():
        definition["required"] = list(definition["properties"])
        for content in definition["properties"].values():
            content.pop("default", None)
    return schema

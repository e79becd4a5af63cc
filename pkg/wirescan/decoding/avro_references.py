"""Avro schemas that refer to other schemas of a registry, as one schema that declares all types.

A registry keeps types of several schemas once: a schema names them, and its references say which
other schemas declare them. `include_references` puts each declaration where its name is used first.

Source: Apache Avro specification 1.12, "Names".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

NAMED = ("record", "error", "enum", "fixed")
INNER = ("type", "items", "values")  # members of other schemas that are schemas
# Words that are no names of other types.
RESERVED = {
    *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
    *("array", "map", *NAMED),
}


def include_references(schema: str, others: Sequence[str]) -> str:
    """Return a schema with the declarations of the types that other schemas declare.

    schema: in JSON. others: schemas in JSON, each after those whose types it uses.

    Raises ValueError for bad schemas, and for a type that is declared twice. Names that no schema
    declares stay.
    """
    types = _Types()
    for other in others:
        types.add(json.loads(other))
    completed = types.include(types.add(json.loads(schema)))
    return json.dumps(completed, ensure_ascii=False)


class _Types:
    """The named types of several schemas, apart from each other."""

    def __init__(self) -> None:
        self._declared: dict[str, dict[str, Any]] = {}
        self._included: set[str] = set()

    def add(self, content: Any, namespace: str = "") -> Any:
        """Add the named types in a schema. Return the schema with their full names instead."""
        if isinstance(content, list):
            return [self.add(branch, namespace) for branch in content]
        if isinstance(content, str):
            if content in RESERVED:
                return content
            full_name = _qualify(content, namespace)
            return full_name if full_name in self._declared else content
        if not isinstance(content, dict):
            raise ValueError("a schema is a name, an object or a list")
        kind = content.get("type")
        if kind in NAMED:
            return self._declare(content, namespace)
        changed = dict(content)
        for key in INNER:
            if key in content:
                changed[key] = self.add(content[key], namespace)
        return changed

    def _declare(self, content: dict[str, Any], namespace: str) -> str:
        """Add a named type, and those inside it. Return its full name."""
        full_name = _qualify(str(content.get("name")), content.get("namespace", namespace))
        if full_name in self._declared:
            raise ValueError(f"type {full_name} is declared twice")
        inner, _, name = full_name.rpartition(".")
        changed = {**content, "name": name, "namespace": inner}
        self._declared[full_name] = changed
        if "fields" in content:
            if not isinstance(content["fields"], list):
                raise ValueError("the fields of a record are no list")
            changed["fields"] = [self._add_field(field, inner) for field in content["fields"]]
        return full_name

    def _add_field(self, field: Any, namespace: str) -> dict[str, Any]:
        if not isinstance(field, dict):
            raise ValueError("a field of a record is no object")
        return {**field, "type": self.add(field.get("type"), namespace)}

    def include(self, content: Any) -> Any:
        """Return a schema of `add` with each declaration where its name is first."""
        if isinstance(content, list):
            return [self.include(branch) for branch in content]
        if isinstance(content, str):
            is_first = content in self._declared and content not in self._included
            if not is_first or content in RESERVED:
                return content
            self._included.add(content)
            return self.include(self._declared[content])
        changed = dict(content)
        if content.get("type") in NAMED:  # `add` has checked the fields of these
            if "fields" in content:
                fields = content["fields"]
                changed["fields"] = [
                    {**each, "type": self.include(each["type"])} for each in fields
                ]
            return changed
        for key in INNER:
            if key in content:
                changed[key] = self.include(content[key])
        return changed


def _qualify(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"

from typing import Any

class WireValue:
    @property
    def kind(self) -> int: ...
    @property
    def value(self) -> Any: ...
    @property
    def items(self) -> list[Any] | None: ...
    @property
    def count(self) -> int: ...
    @property
    def is_cut(self) -> bool: ...
    @property
    def is_broken(self) -> bool: ...

class StructTree:
    @property
    def root(self) -> WireValue: ...
    @property
    def fault(self) -> int: ...
    @property
    def position(self) -> int: ...
    def __init__(
        self,
        data: bytes | memoryview,
        *,
        compact: bool,
        version: int,
        deepest: int,
        most_items: int,
        most_bytes: int,
        budget: int,
    ) -> None: ...

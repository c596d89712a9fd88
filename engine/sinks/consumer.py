"""stub"""
from dataclasses import dataclass
from typing import Protocol
from engine.messages import Bundle
@dataclass(frozen=True, slots=True)
class Last:
    t_last: int
    checksum: int
    blobs: tuple[bytes, ...]
class Consumer(Protocol):
    def deliver(self, bundle: Bundle) -> None: ...
    def last(self, barrier: str, groups: tuple[int, int]) -> Last: ...
    def close(self) -> None: ...

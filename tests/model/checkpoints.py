"""The checkpoints of a job: objects, heads over them, what merging a head gives, and which ones stay."""

from __future__ import annotations

import dataclasses

from tests.model.shard import Captured, Row

Rows = dict[int, Row]
Name = tuple[int, int]  # generation and sequence: the order of heads


class Violation(Exception):
    """A checkpoint, or a restored table, that is not what it should be."""


@dataclasses.dataclass(frozen=True)
class Object:
    """Rows of one kind, tombstones included, that one cut wrote."""
    sequence: int
    rows: dict[int, Captured]


@dataclasses.dataclass(frozen=True)
class Head:
    """What a manifest says. Objects are named by their ids.

    Attributes:
        base_start: the cut at which the base begins.
        origin: of a head published again: its first name.
        copy: the tables at the cut, whole; the oracle.
    """
    name: Name
    parent: Name | None = None
    origin: Name | None = None
    base: int | None = None
    base_start: int = 0
    increments: tuple[int, ...] = ()
    differential: int | None = None
    copy: Rows = dataclasses.field(default_factory=dict)

    @property
    def sequence(self) -> int:
        return self.name[1]

    @property
    def identity(self) -> Name:
        return self.origin or self.name

    @property
    def objects(self) -> set[int]:
        return {self.base, *self.increments, self.differential} - {None}


class Directory:
    """Heads, oldest first, and objects."""

    def __init__(self, keep: int, broken: frozenset[str] = frozenset()):
        self.keep, self.broken = keep, broken
        self.heads: list[Head] = []
        self.objects: dict[int, Object] = {}
        self._made = 0

    def put(self, sequence: int, rows: dict[int, Captured]) -> int:
        self._made += 1
        self.objects[self._made] = Object(sequence, rows)
        return self._made

    def publish(self, head: Head) -> None:
        self.heads = sorted([*self.heads, head], key=lambda item: item.name)

    def levels(self, head: Head) -> list[tuple[dict[int, Captured], int, bool]]:
        """Newest first: rows, the sequence they were written at, whether they are the differential."""
        ids = [head.differential, *reversed(head.increments), head.base]
        try:
            return [(self.objects[i].rows, self.objects[i].sequence, i == head.differential)
                    for i in ids if i is not None]
        except KeyError as error:
            raise Violation(f"head {head.name}: an object it needs was deleted") from error

    def merge(self, head: Head) -> Rows:
        """What the objects of a head hold together."""
        merged: Rows = {}
        for rows, _, _ in reversed(self.levels(head)):
            for key, captured in rows.items():
                if captured.row is None:
                    merged.pop(key, None)
                else:
                    merged[key] = captured.row
        return merged

    def check(self, head: Head) -> None:
        """Raises Violation if a head is not the tables as they were at its cut."""
        check_equal(self.merge(head), head.copy, f"head {head.name}")

    def collect(self) -> None:
        """One pass of retention: old heads go, and objects that none needed before."""
        needed = set().union(*(head.objects for head in self.heads))
        if "keeps the newest chain only" in self.broken:
            needed = self.heads[-1].objects
        if "deletes old differentials" in self.broken:
            needed -= {head.differential for head in self.heads[:-1]}
        old = self._outdated()
        self.heads = [head for head in self.heads if head.name not in old]
        self.objects = {key: item for key, item in self.objects.items() if key in needed}

    def _outdated(self) -> set[Name]:
        """Heads of the lineage as such, and those that branched off it, count by what of the lineage is newer."""
        by_name = {head.name: head for head in self.heads}
        lineage: dict[Name, Head] = {}
        ask = [self.heads[-1].name]
        while ask:
            head = by_name.get(ask.pop())
            if head is not None and head.name not in lineage:
                lineage[head.name] = head
                ask += [head.origin, head.parent]
        newest: dict[Name, Name] = {}  # by identity: a head and its re-publications count once
        for name in sorted(lineage):
            newest[lineage[name].identity] = name
        old = set()
        for head in self._family(lineage):
            age = newest.get(head.identity, head.name)
            spare = (head.origin is not None and age != head.name
                     and not any(item.parent == head.name for item in self.heads))
            if spare or sum(name > age for name in newest.values()) >= self.keep:
                old.add(head.name)
        return old - {self.heads[-1].name}

    def _family(self, lineage: dict[Name, Head]) -> list[Head]:
        """All heads that names or runs connect with the lineage. Others belong to nobody here, and stay."""
        def links(head: Head) -> set:
            return {head.name, head.parent, head.origin, head.name[0]} - {None}

        family, known = [], set().union(*map(links, lineage.values()))
        rest = list(self.heads)
        while joined := [head for head in rest if links(head) & known]:
            family += joined
            known = known.union(*map(links, joined))
            rest = [head for head in rest if head not in joined]
        return family


def check_equal(found: Rows, expected: Rows, what: str) -> None:
    """Raises Violation, naming the first key that differs."""
    if found != expected:
        for key in sorted(found.keys() | expected.keys()):
            if found.get(key) != expected.get(key):
                raise Violation(f"{what}: key {key} is {found.get(key)}, expected {expected.get(key)}")

"""Whatever is saved, pruned, tagged, gone back to and damaged: what is kept comes back to the bit,
or is refused and it is said why."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.history import CheckpointHistory, RetentionPolicy
from costopt.checkpoint.manifest import CheckpointName, Manifest
from costopt.checkpoint.repository import CheckpointRepository

CHUNK = 10

changes = st.sets(st.integers(0, 7), max_size=8)
acts = st.one_of(
    st.tuples(st.just("save"), changes, st.booleans()),
    st.tuples(st.just("save"), changes, st.just(True)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("prune"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["tag", "untag", "rollback"]), st.integers(0, 9)),
    st.tuples(st.just("damage"), st.integers(0, 9), st.integers(0, 9), st.integers(0, 99)),
)


class LineageTrial:
    """A job's checkpoints, and beside them what each must hold."""

    def __init__(self, folder: Path, last: int) -> None:
        self.folder, self.rule = folder, RetentionPolicy(last)
        self.state = {name: bytearray(35) for name in ("a.bin", "b.bin")}
        self.saved: dict[str, dict[str, bytes]] = {}
        self.damaged: set[str] = set()
        self.history = CheckpointHistory.open(str(folder))
        self.generation, self.count = 0, 0
        self.restart()

    @property
    def place(self) -> CheckpointRepository:
        return self.history.place

    def whole(self) -> list[str]:
        return [entry.name for entry in self.history.list() if entry.manifest is not None]

    def save(self, changed: set[int], as_delta: bool) -> None:
        self.count += 1
        for chunk in changed:
            self.state["ab"[chunk // 4] + ".bin"][CHUNK * (chunk % 4)] = self.count % 256
        files = {name: memoryview(bytes(data)) for name, data in self.state.items()}
        saving = SaveRequest(self.count, 1, 0.0, files, as_delta=as_delta)
        name = str(self.committer.commit(saving).name)
        self.saved[name] = {name: bytes(data) for name, data in self.state.items()}

    def restart(self) -> None:
        """Go on from the first that is whole, as a trainer does."""
        self.generation += 1
        names = [str(name) for name in self.place.candidates()[0]]
        parent = next((name for name in names if self.history.verify(name) is None), None)
        if parent is not None:
            self.state = {name: bytearray(data) for name, data in self.saved[parent].items()}
        self.committer = Committer(
            self.place, self.generation, self.rule, parent=parent, chunk_bytes=CHUNK
        )

    def prune(self, last: int) -> None:
        self.history.prune(RetentionPolicy(last), apply=True)

    def tag(self, number: int) -> None:
        names = self.whole()
        if names:
            name = names[number % len(names)]
            self.history.tag(name, f"of-{name}")

    def untag(self, number: int) -> None:
        tags = [tag for tag in sorted(self.place.tags()) if not tag.startswith("base-of:")]
        if tags:
            self.history.untag(tags[number % len(tags)])

    def rollback(self, number: int) -> None:
        names = [name for name in self.whole() if self.history.verify(name) is None]
        if names:
            self.generation = self.history.rollback(names[number % len(names)]).generation
            self.restart()

    def damage(self, number: int, file: int, at: int) -> None:
        names = self.whole()
        files = sorted((self.folder / names[number % len(names)]).glob("*.bin")) if names else []
        if files:
            path = files[file % len(files)]
            data = bytearray(path.read_bytes())
            data[at % len(data)] ^= 1
            path.write_bytes(data)
            self.damaged.add(path.parent.name)

    def check(self) -> None:
        line = [str(name) for name in self.place.candidates()[0]]
        kept = {*line, *map(str, self.place.tagged())}
        assert kept >= set(line[:1])
        for name in kept:
            manifest = self.place.manifest(_parsed(name))
            base = name if manifest.delta is None else manifest.delta.base
            problem = self.history.verify(name)
            if problem is None:
                assert self._read(name, manifest) == self.saved[name]
            else:
                assert "is damaged between bytes" in problem
                blamed = base if problem.startswith(f"its base {base}: ") else name
                assert blamed in self.damaged
            if not {name, base} & self.damaged:
                assert problem is None
            assert self.place.manifest(_parsed(base)).delta is None, "more than one level"

    def _read(self, name: str, manifest: Manifest) -> dict[str, bytes]:
        parsed, delta = _parsed(name), manifest.delta
        return {part.name: self.place.read(parsed, part, delta) for part in manifest.parts}


def _parsed(name: str) -> CheckpointName:
    parsed = CheckpointName.parse(name)
    assert parsed is not None
    return parsed


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.lists(acts, max_size=14))
def test_what_is_kept_is_whole_or_refused_with_the_reason(
    last: int, reported: list[tuple[object, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        describe_run = LineageTrial(Path(folder), last)
        for act, *arguments in reported:
            getattr(describe_run, str(act))(*arguments)
            describe_run.check()

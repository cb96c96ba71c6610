"""Several processes at one store, and what kills them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import activeprune
from activeprune.experiment.store import FolderStore
from tests.experiment.store.makers import temporary_files

# Loads the store without torch: a process then starts in a moment, and may fork.
LIGHT = f"""
import sys, types
for name in ("", ".core", ".experiment"):
    package = types.ModuleType("activeprune" + name)
    package.__path__ = [{os.path.dirname(activeprune.__file__)!r} + name.replace(".", "/")]
    sys.modules["activeprune" + name] = package
from activeprune.experiment.store import *
"""


def run(script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LIGHT + script, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


KILLED = """
import os
root, first = sys.argv[1], sys.argv[2] == "grown"
key, parts = "ab" * 16, {"record.json": b"r" * 20, "state.safetensors": b"s" * 5000}
calls = 0

def deadly(name, last):
    real = getattr(os, name)
    def call(*args):
        global calls
        calls += 1
        if calls == last:
            if name == "write":  # half of it is on the disk
                real(args[0], args[1][: len(args[1]) // 2])
            os._exit(9)
        return real(*args)
    setattr(os, name, call)

def put_and_die(store, last):
    for name in ("open", "write", "fsync", "close", "mkdir", "replace", "unlink", "rename"):
        deadly(name, last)
    store.put(key, parts, {})
    for part in (*parts, *parts):
        store.drop(key, part)
        store.put(key, parts, {})
    os._exit(0)

for last in range(1, 1000):
    store = FolderStore(f"{root}/{last}")
    if first:
        store.put(key, {"record.json": parts["record.json"]}, {})
    child = os.fork()
    if child == 0:
        put_and_die(store, last)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
    for entry in store.list():
        assert entry.key == key and {*entry.parts} <= {*parts}, entry
        assert all(store.get(key, part) == parts[part] for part in entry.parts), last
    assert store.verify() == [], last
    store.put(key, parts, {})
    assert all(store.get(key, part) == data for part, data in parts.items()), last
    for folder, _, names in os.walk(store.root):
        for name in names:
            os.utime(os.path.join(folder, name), (0, 0))  # of long ago
    store.sweep()
    files = [name for _, _, names in os.walk(store.root) for name in names if name != ".lock"]
    assert sorted(files) == sorted([*parts, "manifest.json", "provenance.json"]), (last, files)
print(last)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("before", ["new", "grown"])
def test_a_kill_at_any_moment_leaves_a_whole_entry_or_none(tmp_path: Path, before: str) -> None:
    done = run(KILLED, tmp_path, before)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert int(out) > 80  # moments


AT_ONCE = """
import hashlib, json
root, me = sys.argv[1:]
store = FolderStore(root)
for n in range(40):
    key = hashlib.md5(b"%d" % n).hexdigest()
    store.put(key, {"record.json": me.encode(), "state.safetensors": me.encode() * 999}, {"by": me})
    store.put(key, {"masks.safetensors": b"the same for all"}, {"by": me})
    assert store.get(key, "state.safetensors") == store.get(key, "record.json") * 999
    store.put(hashlib.md5(b"%d %s" % (n, me.encode())).hexdigest(), {"record.json": me.encode()}, {})
"""


def test_processes_at_once_end_well_and_no_entry_is_of_two_minds(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    running = [run(AT_ONCE, store.root, me) for me in ("a", "b", "c")]
    try:
        while any(process.poll() is None for process in running):
            for entry in store.list():
                assert all(store.get(entry.key, part) for part in entry.parts)
    finally:
        errors = [process.communicate(timeout=120)[1] for process in running]
    assert errors == [""] * 3
    entries = [*store.list()]
    assert sorted(len(entry.parts) for entry in entries) == [1] * 120 + [3] * 40
    for entry in entries:
        if len(entry.parts) == 3:
            who = store.get(entry.key, "record.json")
            assert store.get(entry.key, "state.safetensors") == who * 999
            assert store.provenance(entry.key) == {"by": who.decode()}
    assert store.verify() == []
    assert temporary_files(store) == []

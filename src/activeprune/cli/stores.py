"""`activeprune store`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import InputError
from ..experiment.collecting import LARGE, collect, frontier, registered
from ..experiment.store import FolderStore
from ..experiment.store.archive import pack, unpack
from .show import AsJson, print_json, print_table

app = typer.Typer(
    help="Look after a store: what is in it, whether it is whole, what can go, and taking it elsewhere.",
    epilog="Example:  activeprune store verify runs/.store",
    rich_markup_mode=None,
)
USUAL = Path("runs/.store")
StoreFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the store, such as runs/.store.")]


@app.command("ls", epilog="Example:  activeprune store ls runs/.store")
def ls(folder: StoreFolder, as_json: AsJson = False) -> None:
    """List what is in a store: key, kind, size, how long it took and when it was finished."""
    store = _existing(folder)
    rows = [{**store.provenance(entry.key), "key": entry.key, "bytes": entry.size} for entry in store.list()]
    if as_json:
        print_json(rows)
        return
    shown = [
        {
            "key": row["key"],
            "kind": str(row.get("kind", "")),
            "size": f"{row['bytes'] / 1e6:.2f} MB",
            "seconds": f"{told:.1f}" if isinstance(told := row.get("seconds", 0), int | float) else "",
            "finished": str(row.get("finished", "")),
        }
        for row in rows
    ]
    if shown:
        print_table(shown)
    print(f"{len(rows)} entries, {store.size() / 1e6:.1f} MB")


@app.command("verify", epilog="Example:  activeprune store verify runs/.store")
def verify(folder: StoreFolder) -> int:
    """Check every entry against its checksums; damaged ones are set aside, and the next run computes them again."""
    problems = _existing(folder).verify()
    for problem in problems:
        print(problem)
    print(f"{len(problems)} damaged")
    return 1 if problems else 0


@app.command("gc", epilog="Example:  activeprune store gc runs/.store")
def gc(
    folder: StoreFolder,
    forget: Annotated[bool, typer.Option("--forget", help="Forget runs whose folders are gone.")] = False,
) -> None:
    """Remove weights that no run of this store still needs (see the key `keep` of a study), and left-over files."""
    store = _existing(folder)
    freed = collect(store, forget=forget) + store.sweep()
    print(f"{freed / 1e6:.1f} MB freed, {store.size() / 1e6:.1f} MB left")
    for known in registered(store):
        if known.gone:
            print(f"kept what the run in {known.out.resolve()} needs, though the folder is gone (--forget lets it go)")


@app.command("pack", epilog="Example:  activeprune store pack runs/.store table1.tar")
def pack_(
    folder: StoreFolder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    states: Annotated[bool, typer.Option("--states", help="Also the weights that one more cycle would need.")] = False,
) -> None:
    """Write what is needed to go on elsewhere (masks and records) into one file."""
    store = _existing(folder)
    needed = {pair for known in registered(store) for pair in frontier(known.study, store)} if states else set()
    entries = [
        (entry.key, [part for part in entry.parts if part not in LARGE or (entry.key, part) in needed])
        for entry in store.list()
    ]
    count = pack(store, file, [(key, parts) for key, parts in entries if parts])
    print(f"{count} entries in {file}")


@app.command("unpack", epilog="Example:  activeprune store unpack table1.tar runs/.store")
def unpack_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `store pack` wrote.")], folder: StoreFolder
) -> None:
    """Merge a packed file into a store."""
    found = unpack(file, FolderStore(folder))
    print(f"{found.added} added, {found.present} were there")


def _existing(folder: Path) -> FolderStore:
    if not FolderStore(folder).is_there:
        where = folder / ".store"
        usually = "" if folder == USUAL else f", usually {USUAL}"
        made = f"activeprune run makes one beside its folder{usually}"
        raise InputError(f"{folder} is no store: {f'{where} is one' if FolderStore(where).is_there else made}")
    return FolderStore(folder)

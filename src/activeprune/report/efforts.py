"""Tables of the work behind a run: trainings and device time, and where the time of a GPU went."""

from __future__ import annotations

from .cells import number_cell
from .gathering import Gathered
from .layout import Origin, Table, cell
from .packs import sittings
from .trainings import Effort
from .wording import NONE, duration


def effort_table(run: Gathered) -> Table:
    """Trainings and device time of each variant."""
    efforts = {variant: (effort, Origin(run.title, variant)) for variant, effort in run.effort.items()}
    efforts["all together"] = run.in_all, Origin(run.title)
    notes = ["a training that several variants need is counted for each of them, and once in all together"]
    if run.machines:
        notes.append(f"computed on: {', '.join(run.machines)}")
    return Table(
        name="effort",
        title=f"{run.title}: trainings and device time",
        head=("variant", "trainings", "done", "device time", "a training"),
        rows=tuple(
            (cell(name), *(number_cell(text, source) for text in _effort_texts(effort)))
            for name, (effort, source) in efforts.items()
        ),
        notes=tuple(notes),
    )


def packs_table(run: Gathered) -> Table | None:
    """Where the time of a GPU went; None where no trainings went together."""
    found, source = sittings(run.work), Origin(run.title)
    if not found:
        return None
    rows = []
    for one in found:
        numbers = (str(len(one.packs)), str(one.trainings), duration(one.seconds))
        shares = (f"{100 * one.in_packs:.0f} %", f"{100 * one.in_steps:.0f} %", f"{one.images_per_second:,.0f}")
        rows.append((cell(f"{one.began:%Y-%m-%d %H:%M}"), *(number_cell(text, source) for text in numbers + shares)))
    return Table(
        name="packs",
        title=f"{run.title}: trainings that went together on a GPU",
        head=("began (UTC)", "packs", "trainings", "time", "in packs", "in training steps", "images/s"),
        rows=tuple(rows),
        notes=(
            "time: from the first training to the end of the last; images/s: in training, with all else in that time",
            "what is in packs but not in steps is evaluation, looks at dead neurons, and what was measured beside them",
        ),
    )


def _effort_texts(effort: Effort) -> tuple[str, ...]:
    each = duration(effort.seconds / effort.done) if effort.done else NONE
    return str(effort.trainings), str(effort.done), duration(effort.seconds), each

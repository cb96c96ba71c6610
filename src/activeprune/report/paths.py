"""How many trainings the way to a reported network takes."""

from __future__ import annotations

from ..experiment.plan import behind, is_whole_training
from ..experiment.plan.chains import cells
from ..experiment.plan.study import Study


def trainings_to(study: Study) -> dict[tuple[str, int], int]:
    """By variant and cycle, for one seed: from the dense network to the training that is reported, both counted.

    What another λ or another variant needs besides is no part of it, since who wants one pruned network does without.

    >>> from activeprune.experiment.plan.reading import read_study
    >>> study = read_study("table1", {"chain": "rewind", "cycles": 3, "report_cycles": [1, 3]})
    >>> found = trainings_to(study)
    >>> found["plain", 0], found["plain", 1], found["ap_lite", 3]
    (1, 2, 4)
    """
    data = study.training.data.model_copy(update={"path": None})  # whose images they are does not matter
    training = study.training.model_copy(update={"data": data})
    one = study.model_copy(update={"training": training, "seeds": study.seeds[:1]})
    return {
        (cell.variant, cell.cycle): sum(map(is_whole_training, behind([cell.training]).values())) for cell in cells(one)
    }

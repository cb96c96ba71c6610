"""What the paper says in words, and what runs say to it.

A statement holds where the paired 95 % interval lies on the claimed side of 0, fails where it lies on the other side,
and is "not shown" where it contains 0, or does so after Holm's correction, or there is none. The size that the paper
gives is compared, but decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ..experiment.findings import GRANULARITIES
from .gathering import Gathered
from .layout import Table, cell
from .paper import published
from .statements import Finding, accuracy, by, fewer_dead, no_more_trainings, worse_with_high_q
from .statistics import together

Check = Callable[[Sequence[Gathered]], list[Finding]]

LOWEST = 5.72  # λ in the paper's last column


@dataclass(frozen=True)
class Claim:
    """A claim of the paper: where, in which words, and what was found of each of its statements."""

    where: str
    says: str
    findings: tuple[Finding, ...]

    @property
    def status(self) -> str:
        """Of all statements together."""
        found = {finding.status for finding in self.findings}
        if len(found) == 1:
            return found.pop()
        return next((status for status in ("fails", "not shown") if status in found), "holds, in part not run")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        findings = [finding.as_dict() for finding in self.findings]
        return {"where": self.where, "says": self.says, "status": self.status, "findings": findings}


@cache
def checks() -> Mapping[str, tuple[Check, ...]]:
    """The statements of each claim, by where the paper makes it."""
    improved = {
        "table1": by(3, 4),
        "table2": by(3, 4),
        "table3": by(3, 4),
        "table4": by(3, 4),
        "table5": by(2, 3),
        "table6": by(2, 3),
    }
    return {
        "introduction": tuple(accuracy(table, LOWEST, "ap_pro", "plain", change) for table, change in improved.items()),
        "section 4, table 3": (
            accuracy("table3", 13.4, "ap_lite", "plain", by(1.2)),
            accuracy("table3", LOWEST, "ap_lite", "plain", by(1.6)),
            accuracy("table3", 13.4, "ap_pro", "plain", by(4.6)),
            accuracy("table3", LOWEST, "ap_pro", "plain", by(3.8)),
        ),
        "section 4, table 5": (
            accuracy("table5", LOWEST, "ap_lite", "plain", by(1.5)),
            accuracy("table5", LOWEST, "ap_pro", "plain", by(2.8)),
        ),
        "section 4, table 6": (
            accuracy("table6", LOWEST, "ap_lite", "plain", by(1.8)),
            accuracy("table6", LOWEST, "ap_pro", "plain", by(3.3)),
        ),
        "section 5": (
            accuracy("ablation_resnet20", 51.2, "no_rewind", "ap_lite", by(-2.4)),
            accuracy("ablation_resnet20", 51.2, "solo", "ap_lite", by(-2.8)),
        ),
        "appendix, table 2 full": (
            accuracy("table2", 8.59, "ap_lite", "plain", by(_relative(84.5, 86.1))),
            accuracy("table2", 8.59, "ap_pro", "ap_lite", by(_relative(86.1, 87.0))),
        ),
        "appendix, q sweep": tuple(
            worse_with_high_q(f"q_sweep_{network}", printed)
            for network in ("resnet20", "vgg19")
            for printed in (64.0, 40.9, 26.2)
        ),
        "appendix, dynamic DNR": tuple(
            fewer_dead(f"dynamic_dnr_{network}", printed, of)
            for network in ("resnet20", "vgg19")
            for printed in ("80", "20.9")
            for of in GRANULARITIES
        ),
        "section 4": (no_more_trainings,),
    }


def _relative(before: float, after: float) -> float:
    return 100 * (after / before - 1)


def claims(runs: Sequence[Gathered]) -> list[Claim]:
    """All claims of the paper. A comparison has one verdict, here and among the paired differences of its run;
    statements that compare something else are corrected for their own number.
    """
    found = {where: [one for check in own for one in check(runs)] for where, own in checks().items()}
    own = [one.paired for findings in found.values() for one in findings if one.paired and one.paired.p_holm is None]
    tests = iter(together(own))
    corrected = {
        where: tuple(
            replace(one, paired=next(tests)) if one.paired and one.paired.p_holm is None else one for one in findings
        )
        for where, findings in found.items()
    }
    return [Claim(said["where"], said["says"], corrected[said["where"]]) for said in published()["claims"]]


def claims_table(made: Sequence[Claim], several: bool = False) -> Table:
    """One row a statement, of `several` runs with the run's name; a claim of which nothing was run has one row."""
    rows = []
    for claim in made:
        shown = (Finding("all of it"),) if claim.status == "not run" else claim.findings
        whose = (claim.where, claim.says)
        if len(shown) > 1:
            rows.append((*map(cell, (*whose, "all of it")), cell(claim.status, bold=True), cell("")))
            whose = ("", "")
        for finding in shown:
            says = f"{finding.says} ({finding.run})" if finding.run and several else finding.says
            rows.append((*map(cell, (*whose, says)), cell(finding.status, bold=len(shown) == 1), finding.evidence_cell))
    return Table(
        name="claims",
        title="The paper's claims",
        head=("where", "claim", "statement", "status", "evidence"),
        rows=tuple(rows),
        notes=(
            "holds: the paired 95 % interval lies on the claimed side of 0; fails: on the other side; "
            "not shown: it contains 0, or does after Holm's correction, or there is none; "
            "the size that is claimed decides nothing",
            "after Holm: corrected for all paired differences of the run, or, of statements that are none of these, "
            "for the number of such statements",
        ),
        records=tuple(
            {"where": claim.where, "statement": finding.says, "status": finding.status, "run": finding.run}
            for claim in made
            for finding in claim.findings
        ),
    )

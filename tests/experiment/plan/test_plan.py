"""Which trainings a study consists of, against counts and chains worked out by hand."""

import pytest
from torch import Tensor, nn

import activeprune as ap
from activeprune.core.activation import RULES
from activeprune.core.methods import METHODS
from activeprune.data import DATASETS, dataset
from activeprune.data.digits import digits
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.chains import planned_density
from activeprune.experiment.plan.steps import Init, Measure, Prune, Step, Train, identity
from activeprune.experiment.plan.study import Study
from activeprune.experiment.store import FolderStore
from activeprune.networks import NETWORKS, network
from activeprune.training import Training
from activeprune.training.settings import DataChoice, NetworkChoice

TRAINING = Training(network="resnet8", data="digits", lr=0.1, epochs="10ep", batch=32)
BRANCHES = ("ap_lite", "no_rewind", "solo")


def choose(**data: str) -> Training:
    return TRAINING.model_copy(update={"data": DataChoice(**data)})


def study(**keys) -> Study:
    return Study.read({"training": TRAINING, **keys})


def plan(**keys) -> Plan:
    return Plan(study(**keys))


@pytest.mark.parametrize("n", [1, 2, 3, 13])
@pytest.mark.parametrize(
    ("chain", "variant", "count"),
    [
        # reinit: n trainings of the trunk and n retrainings, whatever the variant
        *(("reinit", v, lambda n: 2 * n) for v in ("plain", "plain_rewind", "ap_pro", "ap_lite_literal", *BRANCHES)),
        # rewind: the trunk's retraining is its next training; branches are leaves off T_1 … T_n
        *(("rewind", v, lambda n: n + 1) for v in ("plain", "plain_rewind", "ap_pro")),
        *(("rewind", v, lambda n: 2 * n) for v in ("ap_lite_literal", *BRANCHES)),
        # continue: the same, but plain_rewind is no longer plain's own retraining
        *(("continue", v, lambda n: n + 1) for v in ("plain", "ap_pro")),
        *(("continue", v, lambda n: 2 * n) for v in ("plain_rewind", "ap_lite_literal", *BRANCHES)),
    ],
)
def test_trainings_of_one_variant(chain: str, variant: str, count, n: int) -> None:
    assert len(plan(chain=chain, variants=[variant], cycles=n).trainings) == count(n)


@pytest.mark.parametrize("n", [1, 2, 5, 13])
def test_trainings_of_the_papers_three_variants(n: int) -> None:
    three = ["plain", "ap_lite", "ap_pro"]
    assert len(plan(variants=three, cycles=n).trainings) == 5 * n - 2
    assert len(plan(variants=[*three, "plain_rewind"], cycles=n).trainings) == 6 * n - 2
    assert len(plan(variants=three, cycles=n, chain="rewind").trainings) == 3 * n
    assert len(plan(variants=[*three, "plain_rewind"], cycles=n, chain="rewind").trainings) == 3 * n
    assert len(plan(variants=three, cycles=n, chain="continue").trainings) == 3 * n
    assert len(plan(variants=three, cycles=n, method="imp").trainings) == 3 * n  # the first epochs are not counted
    assert len(plan(variants=three, cycles=n, seeds=4).trainings) == 4 * (5 * n - 2)


def test_trainings_of_table_1() -> None:
    reported = [2, 4, 5, 6, 9, 11, 13]
    three = ["plain", "ap_lite", "ap_pro"]
    assert len(plan(variants=three, cycles=13, report_cycles=reported).trainings) == 46
    assert len(plan(variants=[*three, "plain_rewind"], cycles=13, report_cycles=reported).trainings) == 53


def waves(found: Plan, first: int = 0) -> list[int]:
    """How many whole trainings that begin with epoch `first` follow on 0, 1, … others."""
    sizes = found.todo(FolderStore("/nowhere")).waves
    return [sizes[wave] for wave in sorted(sizes, key=lambda wave: wave[1]) if wave[0][1:] == (first, None)]


def test_trainings_that_can_be_done_side_by_side() -> None:
    found = plan(variants=["plain"], cycles=3, seeds=4)  # T1; T2 and R1; T3 and R2; R3
    assert waves(found) == [4, 8, 8, 4]
    assert found.todo(FolderStore("/nowhere")).abreast() == {TRAINING: 8}
    assert waves(plan(variants=["plain"], cycles=2, chain="rewind", seeds=4)) == [4, 4, 4]
    late = plan(variants=["plain"], cycles=2, method="imp", seeds=4)
    assert waves(late) == [4]  # the first one, which goes on from its own first epochs
    assert waves(late, first=6) == [4, 4]
    other = TRAINING.model_copy(update={"lr": 0.5})
    several = Plan(found.studies[0], found.studies[0].model_copy(update={"training": other, "seeds": (0,)}))
    assert several.todo(FolderStore("/nowhere")).abreast() == {TRAINING: 8, other: 2}


@pytest.mark.parametrize("n", [1, 4])
def test_pruning_before_training(n: int) -> None:
    found = plan(method="synflow", variants=["plain"], cycles=n)
    assert len(found.trainings) == n + 1  # and the dense one
    prunings = [step for step in found.steps.values() if isinstance(step, Prune)]
    assert len(prunings) == n
    assert all(step.trained == Init(TRAINING, 0, 1) for step in prunings)
    assert all(isinstance(step.start, Init) and step.start.cycle == 1 for step in found.trainings)


def cells(found: Plan) -> dict[tuple[str, int], Train]:
    return {(cell.variant, cell.cycle): cell.training for cell in found.cells}


def test_reinit_step_by_step() -> None:
    """i_k trains T_k under m_{k-1}; plain goes on from θ*_k, everyone else from i_k again."""
    everyone = ["plain", "plain_rewind", "ap_lite", "ap_pro", "no_rewind", "solo", "ap_lite_literal"]
    found = cells(plan(variants=everyone, cycles=2))
    i1, i2 = Init(TRAINING, 0, 1), Init(TRAINING, 0, 2)
    t1 = Train(TRAINING, 0, i1)
    m1 = Prune(TRAINING, 0, 1, t1, None, None, "global_magnitude", 0.2)
    t2 = Train(TRAINING, 0, i2, m1)
    m2 = Prune(TRAINING, 0, 2, t2, None, m1, "global_magnitude", 0.2)
    assert {training.key for (_, cycle), training in found.items() if cycle == 0} == {t1.key}
    assert found["plain", 1].key == Train(TRAINING, 0, t1, m1).key
    assert found["plain", 2].key == Train(TRAINING, 0, t2, m2).key
    assert found["plain_rewind", 2].key == Train(TRAINING, 0, i2, m2).key
    lite = Prune(TRAINING, 0, 2, t2, i2, m1, "global_magnitude", 0.2, 0.02)
    assert found["ap_lite", 2].key == Train(TRAINING, 0, i2, lite).key
    assert found["no_rewind", 2].key == Train(TRAINING, 0, t2, lite).key
    solo = Prune(TRAINING, 0, 2, t2, i2, m1, "global_magnitude", 0.2, mode="solo")
    assert found["solo", 2].key == Train(TRAINING, 0, i2, solo).key
    pro1 = Prune(TRAINING, 0, 1, t1, i1, None, "global_magnitude", 0.2, 0.02)
    pro_t2 = Train(TRAINING, 0, i2, pro1)
    pro2 = Prune(TRAINING, 0, 2, pro_t2, i2, pro1, "global_magnitude", 0.2, 0.02)
    assert found["ap_pro", 1].key == found["ap_lite", 1].key == Train(TRAINING, 0, i1, pro1).key
    assert found["ap_pro", 2].key == Train(TRAINING, 0, i2, pro2).key
    low1 = Prune(TRAINING, 0, 1, t1, None, None, "global_magnitude", 0.18)
    low_t2 = Train(TRAINING, 0, i2, low1)
    low2 = Prune(TRAINING, 0, 2, low_t2, None, low1, "global_magnitude", 0.18)
    end = Prune(TRAINING, 0, 2, low_t2, i2, low2, "global_magnitude", 0.0, 0.02, mode="end")
    assert found["ap_lite_literal", 2].key == Train(TRAINING, 0, i2, end).key


def test_rewind_step_by_step() -> None:
    """Everything after cycle 1 starts from the state at the rewind epoch, with schedule and data from there on."""
    found = cells(plan(variants=["plain", "ap_lite", "ap_pro", "no_rewind"], cycles=2, method="imp", rewind_epoch=3))
    i1 = Init(TRAINING, 0, 1)
    early = Train(TRAINING, 0, i1, last=3)
    t1 = Train(TRAINING, 0, i1)
    assert found["plain", 0].key == t1.key
    assert found["plain", 0].resume == early
    m1 = Prune(TRAINING, 0, 1, t1, None, None, "imp", 0.2)
    t2 = Train(TRAINING, 0, early, m1, first=3)
    assert found["plain", 1].key == t2.key
    m2 = Prune(TRAINING, 0, 2, t2, None, m1, "imp", 0.2)
    assert found["plain", 2].key == Train(TRAINING, 0, early, m2, first=3).key
    lite = Prune(TRAINING, 0, 2, t2, i1, m1, "imp", 0.2, 0.02)  # movement from the initialisation
    assert found["ap_lite", 2].key == Train(TRAINING, 0, early, lite, first=3).key
    assert found["no_rewind", 2].key == Train(TRAINING, 0, t2, lite).key
    moved = cells(plan(variants=["ap_lite"], cycles=2, method="imp", rewind_epoch=3, movement_from="rewind"))
    other = Prune(TRAINING, 0, 2, t2, early, m1, "imp", 0.2, 0.02)
    assert moved["ap_lite", 2].key == Train(TRAINING, 0, early, other, first=3).key


def test_continue_step_by_step() -> None:
    """Plain goes on and on; AP and plain_rewind go back to where the cycle's training started."""
    found = cells(plan(variants=["plain", "plain_rewind", "ap_lite", "ap_pro"], cycles=2, chain="continue"))
    i1 = Init(TRAINING, 0, 1)
    t1 = Train(TRAINING, 0, i1)
    m1 = Prune(TRAINING, 0, 1, t1, None, None, "global_magnitude", 0.2)
    t2 = Train(TRAINING, 0, t1, m1)
    m2 = Prune(TRAINING, 0, 2, t2, None, m1, "global_magnitude", 0.2)
    assert found["plain", 1].key == t2.key
    assert found["plain", 2].key == Train(TRAINING, 0, t2, m2).key
    assert found["plain_rewind", 2].key == Train(TRAINING, 0, t1, m2).key
    lite = Prune(TRAINING, 0, 2, t2, t1, m1, "global_magnitude", 0.2, 0.02)
    assert found["ap_lite", 2].key == Train(TRAINING, 0, t1, lite).key
    pro1 = Prune(TRAINING, 0, 1, t1, i1, None, "global_magnitude", 0.2, 0.02)
    p1 = Train(TRAINING, 0, i1, pro1)
    pro2 = Prune(TRAINING, 0, 2, p1, i1, pro1, "global_magnitude", 0.2, 0.02)
    assert found["ap_pro", 2].key == Train(TRAINING, 0, i1, pro2).key


def test_a_retraining_from_trained_weights_may_have_rates_of_its_own() -> None:
    found = cells(plan(variants=["plain", "plain_rewind", "no_rewind"], retrain="finetune"))
    assert found["plain", 1].training.rates == "finetune"
    assert found["plain_rewind", 1].training == found["no_rewind", 1].training == TRAINING
    high = cells(plan(variants=["plain"], retrain="s_cyc", lr_high=0.3, chain="continue", cycles=2))
    assert [high["plain", k].training.lr_high for k in (0, 1, 2)] == [None, 0.3, 0.3]


def test_more_cycles_seeds_and_variants_find_all_earlier_work_again() -> None:
    small = plan(variants=["plain"], cycles=2, seeds=[0])
    large = plan(variants=["plain", "ap_pro"], cycles=4, seeds=[0, 1])
    assert set(small.steps) < set(large.steps)


def test_what_is_not_identity_does_not_change_a_key() -> None:
    here, there = (
        Plan(study(training=TRAINING.model_copy(update={"data": TRAINING.data.model_copy(update={"path": path})})))
        for path in (None, "/elsewhere")
    )
    assert set(here.steps) == set(there.steps)
    assert set(plan(device="cuda", keep="records").steps) == set(plan().steps)
    assert not set(plan(p=0.3).steps) >= set(plan().steps)


def test_a_learning_rate_changes_trainings_but_not_where_they_start() -> None:
    other = TRAINING.model_copy(update={"lr": 0.2})
    assert Init(TRAINING, 0, 1).key == Init(other, 0, 1).key != Init(TRAINING, 1, 1).key
    assert Train(TRAINING, 0, Init(TRAINING, 0, 1)).key != Train(other, 0, Init(other, 0, 1)).key


def test_inputs_come_before_what_needs_them() -> None:
    seen: set[str] = set()
    for step in plan(variants=["plain", "ap_pro", "ap_lite"], cycles=3, seeds=2).steps.values():
        assert all(used.key in seen for used in step.inputs.values())
        seen.add(step.key)


RECORDED = {
    "an initialisation": "e9c48e41b4f647e2cd658db9503f9234",
    "a dense training": "f89806853558d8172d874d67ee454c1e",
    "a training with more settings": "69c3baf190bdd2ac9b194012507ae273",
    "X and AP": "9eb23666689837b0aaeecd4064bf148d",
    "a retraining": "a9fa636b8ada49cc5613bd77678fe0d9",
    "first epochs": "457c0874e7dd37d90d9a28def9acff14",
    "options": "f7b976fa71d02a6cdee13b2ec5049fdb",
    "a rule and a scope": "cf56acbcc65c35be1d39543c9e2edb26",
    "a choice of layers": "7abdee95d811a81f2960b46708aeabac",
    "solo": "38eff9d7b3187c3b88a6f1d9a1e38e6f",
    "end": "f31d5ad6a2289317f1b1d897425fd27f",
    "before training": "aa702cb33a59aa960e4c07b7d18d7cf4",
    "a measurement": "a5626337b7081e61f9f4fa1078f0702b",
    "a measurement of some images": "1b5a15c48ca9d4fa74407034d03f1c2a",
}


def test_keys_are_the_same_for_ever() -> None:
    """Recorded: a default that changes, or a field that is renamed, would orphan every result."""
    i1 = Init(TRAINING, 0, 1)
    t1 = Train(TRAINING, 0, i1)
    lamp = Prune(TRAINING, 0, 1, t1, None, None, "lamp", 0.2)
    other = TRAINING.model_copy(update={"precision": "bf16", "weight_decay": 1e-4, "label_smoothing": 0.1})
    steps: dict[str, Step] = {
        "an initialisation": i1,
        "a dense training": t1,
        "a training with more settings": Train(other, 3, Init(other, 3, 2)),
        "X and AP": Prune(TRAINING, 0, 1, t1, i1, None, "global_magnitude", 0.2, 0.02),
        "a retraining": Train(TRAINING, 0, t1, lamp, first=2),
        "first epochs": Train(TRAINING, 0, i1, last=2),
        "options": Prune(TRAINING, 0, 1, t1, None, lamp, "obd", 0.2, options=(("probes", 8),), score_batches=3),
        "a rule and a scope": Prune(TRAINING, 0, 2, t1, i1, lamp, "lamp", 0.2, 0.1, rule="negative", scope="layer"),
        "a choice of layers": Prune(TRAINING, 0, 1, t1, None, None, "lamp", 0.2, include=("conv*",), exclude=("fc",)),
        "solo": Prune(TRAINING, 0, 1, t1, i1, None, "lamp", 0.2, mode="solo"),
        "end": Prune(TRAINING, 0, 1, t1, i1, lamp, "lamp", 0.0, 0.02, mode="end"),
        "before training": Prune(other, 0, 1, i1, None, None, "snip", 0.2),
        "a measurement": Measure(TRAINING, 0, t1, lamp),
        "a measurement of some images": Measure(other, 0, i1, None, 1000),
    }
    assert {what: step.key for what, step in steps.items()} == RECORDED


def test_what_is_written_out_and_equal_to_the_default_is_the_default() -> None:
    known = {"scope": "global", "score_batches": 20, "include": [], "exclude": []}
    assert set(plan(method="global_gradient", **known).steps) == set(plan(method="global_gradient").steps)
    assert set(plan(method="global_gradient", scope="layer").steps) != set(plan(method="global_gradient").steps)
    assert set(plan(method="layer_magnitude", scope="layer").steps) == set(plan(method="layer_magnitude").steps)


def test_a_pruning_before_training_does_not_depend_on_how_the_training_goes_on() -> None:
    slower = TRAINING.model_copy(update={"lr": 0.001})
    one, two = (Prune(t, 0, 1, Init(t, 0, 1), None, None, "snip", 0.2).key for t in (TRAINING, slower))
    assert one == two
    smoothed = TRAINING.model_copy(update={"label_smoothing": 0.1})
    assert Prune(smoothed, 0, 1, Init(smoothed, 0, 1), None, None, "snip", 0.2).key != one


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies, so that what a test registers is gone with it."""
    for registry in (METHODS, NETWORKS, DATASETS, RULES):
        for table in ("_known", "_origin"):
            monkeypatch.setattr(registry, table, dict(getattr(registry, table)))


@pytest.mark.usefixtures("registries")
def test_code_of_ones_own_has_a_version() -> None:
    def own(weight: Tensor) -> Tensor:
        return weight

    keys = []
    for version in (1, 2):
        ap.method("versioned", version=version)(own)
        keys.append(Prune(TRAINING, 0, 1, Init(TRAINING, 0, 1), None, None, "versioned", 0.2).key)
    assert keys[0] != keys[1]

    def build(num_classes: int = 10, in_channels: int = 1) -> nn.Module:
        return nn.Linear(in_channels, num_classes)

    keys = []
    for version in (1, 2):
        network("versioned", version=version)(build)
        keys.append(Init(TRAINING.model_copy(update={"network": NetworkChoice(name="versioned")}), 0, 1).key)
    assert keys[0] != keys[1]
    for version in (1, 2):
        dataset("versioned", version=version)(digits)
        keys.append(Train(choose(name="versioned"), 0, Init(TRAINING, 0, 1)).key)
        ap.activation_rule("versioned", version=version)(lambda journey, count: {})
        keys.append(Prune(TRAINING, 0, 1, Init(TRAINING, 0, 1), None, None, "lamp", 0.2, 0.1, rule="versioned").key)
    assert len(set(keys)) == 6


def test_data_of_ones_own_are_known_by_name_and_path() -> None:
    own = "activeprune.data.digits:digits"
    here, there, named = (
        choose(name=own, path="/here"),
        choose(name=own, path="/there"),
        choose(name="digits", path="/x"),
    )
    assert identity(here) != identity(there)
    assert identity(named) == identity(choose(name="digits"))


def test_a_density_as_it_will_be_is_that_of_the_cells_masks() -> None:
    """p = 0.2 and q = 0.02: 0.8, but for Algorithm 2 as printed 0.82 in every cycle and 0.98 at the end of the last."""
    everyone = ["plain", "plain_rewind", "ap_lite", "ap_pro", "no_rewind", "solo", "ap_lite_literal"]
    chosen = study(variants=everyone, cycles=3)
    for cell in Plan(chosen).cells:
        literal = cell.variant == "ap_lite_literal" and cell.cycle > 0
        assert cell.density == pytest.approx(0.82**cell.cycle * 0.98 if literal else 0.8**cell.cycle)
        assert planned_density(chosen, cell.variant, cell.cycle) == cell.density
    assert planned_density(study(cycles=200), "plain", 200) == pytest.approx(0.8**200)  # no recursion goes so deep

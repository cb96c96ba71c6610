"""What decides a training: typed, frozen, and strict about what it is told."""

import pytest
from pydantic import ValidationError

import activeprune as ap
from activeprune.training import DataChoice, Training
from activeprune.training.settings import OF_THE_BATCHES, OF_THE_IMAGES, OF_THE_NETWORK
from tests.training.makers import BASE, training


def test_names_and_mappings_are_both_understood() -> None:
    short = Training.read({**BASE, "network": "resnet20", "data": "cifar10"})
    long = Training.read({**BASE, "network": {"name": "resnet20"}, "data": {"name": "cifar10"}})
    assert short == long
    padded = Training.read({**BASE, "network": {"name": "resnet20", "shortcut": "pad"}})
    assert padded.network.options == (("shortcut", "pad"),)


def test_a_training_is_hashable_frozen_and_equal_by_value() -> None:
    one, two = training(drops=["1ep", "5it"]), training(drops=("1ep", "5it"))
    assert one == two
    assert len({one, two, training(lr=0.06)}) == 2
    with pytest.raises(ValidationError, match="frozen"):
        one.lr = 0.2


def test_a_training_survives_being_written_down() -> None:
    one = training(network={"name": "resnet20", "shortcut": "pad"}, drops=["1ep"], mean=[0.5, 0.4], std=[0.2, 0.3])
    assert Training.model_validate_json(one.model_dump_json()) == one
    assert Training.read(one.model_dump(exclude_defaults=True)) == one


def test_a_number_that_yaml_reads_as_text_is_a_number() -> None:
    assert training(weight_decay="1e-4").weight_decay == 1e-4


WRONG = [
    ({"lrr": 0.1}, "unknown key 'lrr': did you mean 'lr'?"),
    ({"data": {"name": "digits", "limt": 5}}, "unknown option of 'digits' 'limt': did you mean 'limit'?"),
    (
        {"network": {"name": "resnet20", "shortcat": "pad"}},
        "unknown option of 'resnet20' 'shortcat': did you mean 'shortcut'?",
    ),
    ({"network": "resnet21"}, "unknown network 'resnet21': did you mean 'resnet20'?"),
    ({"network": "no.such.module:build"}, "cannot be imported"),
    ({"data": "cifar11"}, "unknown data set 'cifar11': did you mean 'cifar10'?"),
    ({"lr": 0}, "lr = 0: more than 0 is needed"),
    ({"lr": "nan"}, "lr = 'nan': a finite number is needed"),
    ({"lr": True}, "a number is needed, not True"),
    ({"momentum": 1.0}, "momentum = 1.0: less than 1 is needed"),
    ({"batch": 0}, "batch = 0: at least 1 is needed"),
    ({"batch": 12.5}, "batch = 12.5"),
    ({"epochs": 0}, "epochs = 0: at least 1"),
    ({"epochs": "ten"}, 'such as "80ep"'),
    ({"drops": ["1ep", "x"]}, "drops.1 = 'x'"),
    ({"optimizer": "sdg"}, "did you mean 'sgd'? (known: adam, adamw, sgd)"),
    ({"precision": "fp16"}, "(known: bf16, fp32)"),
    ({"schedule": "cosine", "drops": ["1ep"]}, "drops belong to schedule = drops"),
    ({"nesterov": True, "momentum": 0}, "nesterov = true needs a momentum"),
    ({"rates": "s_cyc"}, "lr_high = None: s_cyc needs one of at least lr"),
    ({"rates": "s_cyc", "lr": 0.2, "lr_high": 0.1}, "s_cyc needs one of at least lr = 0.2"),
    ({"lr_high": 0.1}, "others none"),
    ({"mean": [0.5]}, "both or none"),
    ({"mean": [0.5, 0.5], "std": [0.5]}, "one number a channel"),
    ({"std": [0.0], "mean": [0.0]}, "more than 0 is needed"),
    ({"network": {"name": "vit_b16", "pretrained": True}, "init": "kaiming_normal"}, "would discard them"),
    (
        {"network": {"name": "tests.training.makers:loading", "weights": "ALL"}, "init": "kaiming_normal"},
        "would discard",
    ),
    ({"init": "xavier"}, "(known: kaiming_normal, native)"),
    ({"data": {"name": "digits", "limit": 1}}, "data.limit = 1"),
    ({"augment": "flip_crop"}, "crop_flip, none"),
    ({"label_smoothing": 1}, "label_smoothing = 1"),
    ({"clip": -1}, "clip = -1"),
    ({"mean": [125, 125], "std": [0.5, 0.5]}, "mean.0 = 125: at most 1 is possible"),
    ({"drops": ["1ep", "1ep"]}, "one stands there twice"),
    ({"network": {"name": "resnet20", "shortcut": None}}, "option shortcut = None: a number, a text"),
    ({"network": ".x:build"}, "cannot be imported"),
    ({"early_stop": "best_test"}, "known: best_validation, "),
]


@pytest.mark.parametrize(("keys", "message"), WRONG, ids=[str(keys)[:40] for keys, _ in WRONG])
def test_bad_input_is_one_line_with_key_value_and_what_is_allowed(keys: dict, message: str) -> None:
    with pytest.raises(ap.InputError) as caught:
        training(**keys)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("values", [None, {1: 2}, [("lr", 1)]])
def test_what_is_no_mapping_of_keys_is_refused(values: object) -> None:
    with pytest.raises(ap.InputError, match="keys and values are needed"):
        Training.read(values)


def test_saying_the_default_is_saying_nothing() -> None:
    assert training(network={"name": "resnet20", "shortcut": "conv"}) == training(network="resnet20")


def test_channels_and_resolution_of_network_and_data_must_agree() -> None:
    with pytest.raises(ap.InputError, match="resnet8 takes images of 7 channels, and digits has 1"):
        training(network={"name": "resnet8", "in_channels": 7}, data="digits").build(10, channels=1)
    with pytest.raises(ap.InputError, match="resolution = 32, and that of vit_b16 is 64"):
        training(network={"name": "vit_b16", "resolution": 64}, resolution=32).build(10, channels=3)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ap.InputError, match="key 'lr' is missing"):
        Training.read({key: value for key, value in BASE.items() if key != "lr"})


def test_the_network_is_built_for_the_data() -> None:
    grey = training(network="resnet8", data="digits").build(num_classes=10, channels=1)
    assert grey.conv.weight.shape[1] == 1
    with pytest.raises(ap.InputError, match="resnet50 takes images of 3 channels, and digits has 1"):
        training(network="resnet50", data="digits").build(num_classes=10, channels=1)


def test_the_resolution_reaches_network_and_images() -> None:
    chosen = training(network="vit_b16", data={"name": "digits", "limit": 40}, resolution=32, batch=4)
    feed = chosen.feed(seed=0)
    assert next(feed.training(0))[0].shape == (4, 1, 32, 32)
    assert chosen.build(10, channels=3).patch_embed.img_size == (32, 32)


def test_the_recipes_normalisation_is_used() -> None:
    feed = training(mean=[0.25, 0.5], std=[0.5, 0.25]).feed(seed=0)
    assert (feed.normalisation.mean, feed.normalisation.std) == ((0.25, 0.5), (0.5, 0.25))
    assert training().feed(seed=0).normalisation != feed.normalisation


def test_where_data_are_does_not_change_what_they_are() -> None:
    assert DataChoice(name="cifar10", path="/a").model_dump(exclude={"path"}) == {
        "name": "cifar10",
        "options": (),
        "content": None,
        "limit": None,
        "validation": None,
    }


OF_THE_LOOP = {
    "optimizer", "lr", "momentum", "nesterov", "betas", "weight_decay", "epochs", "schedule", "warmup", "drops",
    "drop_factor", "rates", "lr_high", "precision", "clip", "label_smoothing", "early_stop",
}  # fmt: skip


def test_of_every_field_it_is_said_what_it_decides() -> None:
    """A new one that decides what the network or its batches are must be in their keys and in those of kept feeds."""
    grouped = {*OF_THE_NETWORK, *OF_THE_BATCHES}
    assert grouped.isdisjoint(OF_THE_LOOP)
    assert grouped | OF_THE_LOOP == set(Training.model_fields)
    assert {*OF_THE_IMAGES} < {*OF_THE_BATCHES}

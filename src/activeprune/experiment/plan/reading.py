"""Studies and trainings as files: YAML with flat keys, each extending another and overriding some."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from ...core.errors import InputError, unknown
from ...training import Training
from ...training.settings import DataChoice
from .study import Study

HERE = Path(__file__).parent.parent
STUDIES, TRAININGS = HERE / "studies", HERE / "trainings"

OF_THE_STUDY = {"rates", "lr_high"}  # of a training these are set by what a retraining is: `retrain`, `lr_high`
TRAINING_KEYS = set(Training.model_fields) - OF_THE_STUDY
STUDY_KEYS = set(Study.model_fields) - {"training"}
NO_PART_OF_A_RESULT = {"device", "keep"}
KEYS = TRAINING_KEYS | STUDY_KEYS | {"extends", "training", "grid"}
MOST_STUDIES = 1000  # of a grid


def read_study(name: str | Path, changes: Mapping[str, Any] | None = None) -> Study:
    """A study by its name or file, with some keys changed.

    >>> study = read_study("table1", {"seeds": 3, "data.limit": 2000})
    >>> study.training.network.name, study.training.data.limit, study.seeds
    ('resnet20', 2000, (0, 1, 2))
    """
    found = read_grid(name, changes)
    if len(found) > 1:
        raise InputError(f"{name} is a grid of {len(found)} studies, not one")
    return next(iter(found.values()))


def read_grid(
    name: str | Path, changes: Mapping[str, Any] | None = None, grid: Mapping[str, Sequence[Any]] | None = None
) -> dict[str, Study]:
    """All studies of a grid by "key=value,key=value"; a study without a grid has the name "".

    >>> list(read_grid("smoke", grid={"q": [0.01, 0.02], "p": [0.2]}))
    ['q=0.01,p=0.2', 'q=0.02,p=0.2']
    """
    for role, given, example in (("set", changes, "{'cycles': 2}"), ("grid", grid, "{'q': [0.01, 0.02]}")):
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
            raise InputError(f"{role} = {given!r}: keys and values are needed, such as {role}={example}")
    values = _resolved(_file(name, (STUDIES, TRAININGS)), ())
    own = values.pop("grid", None) or {}
    if not isinstance(own, Mapping):
        raise InputError(f"grid = {own!r}: keys with lists of values are needed")
    lists = {**own, **(grid or {})}
    for key in changes or {}:
        if key in (grid or {}):
            raise InputError(f"{key} stands in the grid and among the changes: one of them is needed")
        lists.pop(key, None)  # one value was chosen
    for key, several in lists.items():
        if key in NO_PART_OF_A_RESULT:
            raise InputError(f"grid: {key} does not change a result: give it one value with --set")
        if isinstance(several, str) or not isinstance(several, Sequence) or not several:
            raise InputError(f"grid: {key} = {several!r}: a list of values is needed")
        if len({str(value) for value in several}) != len(several):
            raise InputError(f"grid: {key} = {list(several)}: one stands there twice")
    if (count := prod(len(several) for several in lists.values())) > MOST_STUDIES:
        raise InputError(f"a grid of {count:,} studies: at most {MOST_STUDIES:,} are possible")
    studies = {}
    for combination in product(*lists.values()):
        chosen = dict(zip(lists, combination, strict=True))
        label = ",".join(f"{key}={value}" for key, value in chosen.items())
        studies[label] = _study(_changed(values, {**(changes or {}), **chosen}))
    return studies


def study_names() -> dict[str, str]:
    """The studies that come with the library, and what each is."""
    return {path.stem: _about(path) for path in sorted(STUDIES.glob("*.yaml"))}


def study_keys() -> Iterator[tuple[str, FieldInfo]]:
    """Every key that a study may have, with what is known of it: the study's own, its training's, its data's."""
    for model, keys, prefix in (
        (Study, STUDY_KEYS, ""),
        (Training, TRAINING_KEYS, ""),
        (DataChoice, DataChoice.model_fields, "data."),
    ):
        yield from ((f"{prefix}{key}", field) for key, field in model.model_fields.items() if key in keys)


def parsed(text: str, where: str, modules: Container[str] | None = None) -> Study:
    """The inverse of `written`.

    A network or data set may be named as `package.module:function`, and to read that name is to import the module.
    `modules` are those that it may be of; None: any, for a text that is one's own.
    """
    values = _from_yaml(text, f"{where} is no YAML")
    if not isinstance(values, dict):
        raise InputError(f"{where} holds no study")
    for key in ("network", "data") if modules is not None else ():
        named = values.get(key)
        name = str(named.get("name") if isinstance(named, Mapping) else named)
        module, colon, _ = name.partition(":")
        if colon and module not in (modules or ()):
            raise InputError(f"{where}: {key} {name!r} is code: --import {module} lets it run, if you know it")
    return _study(values)


def written(study: Study) -> str:
    """A study as YAML that reads as the same study."""
    values = study.model_dump(mode="json", exclude_defaults=True)
    values.update(values.pop("training"))
    return yaml.safe_dump(values, sort_keys=False)


def flat(study: Study) -> dict[str, Any]:
    """All keys of a study and of its training, as a file has them, and their values."""
    training = study.training.model_dump(mode="json", exclude=OF_THE_STUDY)
    return {**study.model_dump(mode="json", exclude={"training"}), **training}


def in_results(study: Study) -> dict[str, Any]:
    """The keys of a study that change what comes out, and their values; where the data are is none."""
    values = {key: value for key, value in flat(study).items() if key not in NO_PART_OF_A_RESULT}
    values["data"].pop("path")
    return values


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Keys and values from "key=value" texts; a value is read as YAML.

    >>> assignments(["lr=0.1", "report_cycles=[1, 2]", "data.path=/tmp"])
    {'lr': 0.1, 'report_cycles': [1, 2], 'data.path': '/tmp'}
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"{text!r} is no assignment: key=value is needed, such as lr=0.1")
        if key.strip() in found:
            raise InputError(f"{key.strip()} is given twice: one value is needed")
        text = value.strip()
        as_it_is = not text or text.startswith("*")  # *.conv1, say: YAML would take it for an alias, which none may be
        found[key.strip()] = text if as_it_is else _from_yaml(value, f"{key} = {value!r} cannot be read as YAML")
    return found


def unknown_key(key: str) -> InputError:
    """The error for a key that a study does not have; one of the data's is told by its whole name.

    >>> print(unknown_key("path"))
    unknown key 'path': did you mean 'data.path'? (activeprune list keys explains all)
    """
    if key in DataChoice.model_fields:
        return InputError(f"unknown key {key!r}: did you mean 'data.{key}'? (activeprune list keys explains all)")
    return unknown("key", key, KEYS)


def _study(values: Mapping[str, Any]) -> Study:
    for key in values:
        if key not in KEYS:
            raise unknown_key(key)
    training = Training.read({key: value for key, value in values.items() if key in TRAINING_KEYS})
    own = {key: value for key, value in values.items() if key in STUDY_KEYS}
    return Study.read({"training": training, **own})


def _changed(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`training` first, since it brings many keys; "data.path" changes one entry of `data`."""
    for key in ("extends", "grid"):
        if key in changes:
            raise InputError(f"{key} cannot be changed from outside: write a study that has another")
    if "training" in changes:
        values = _with_training(values, _resolved(_file(str(changes["training"]), (TRAININGS,)), ()))
    values = dict(values)
    for key, value in sorted(changes.items(), key=lambda item: "." in item[0]):  # a whole before its parts
        value = value.tolist() if hasattr(value, "tolist") else value  # numpy's numbers
        outer, dot, inner = key.partition(".")
        if dot and outer in ("data", "network", "method"):
            before = values.get(outer)
            values[outer] = {**(before if isinstance(before, Mapping) else {"name": before}), inner: value}
        elif key != "training":
            values[key] = value
    return values


def _resolved(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    """The keys of a file on top of those that it extends."""
    if path in below:
        raise InputError(f"{path.name} extends itself: {' → '.join(p.stem for p in (*below, path))}")
    own = _loaded(path)
    values: dict[str, Any] = {}
    if "extends" in own:
        folders = (path.parent, STUDIES, TRAININGS)
        values = _resolved(_file(str(own.pop("extends")), folders, but=path), (*below, path))
    if "training" in own:
        chosen = _resolved(_file(str(own.pop("training")), (path.parent, TRAININGS), but=path), (*below, path))
        values = _with_training(values, chosen)
    return {**values, **own}


def _with_training(values: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, Any]:
    """All keys of another training; where the data are stays, if they are the same data."""
    kept = {key: value for key, value in values.items() if key not in TRAINING_KEYS}
    before, data = values.get("data"), training.get("data")
    if isinstance(before, Mapping) and before.get("name") == data:
        training = {**training, "data": before}
    return {**kept, **training}


def _loaded(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no YAML: {error}") from error
    values = _from_yaml(text, f"{path} is no YAML")
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise InputError(f"{path} must hold keys and values, such as 'lr: 0.1'")
    for key in values:
        if key not in KEYS:
            raise InputError(f"{path.name}: {unknown_key(key)}")
    return values


class _Loader(yaml.SafeLoader):
    """Plain values alone: no tag makes an object, no alias unfolds a few lines into more than memory holds, and a key
    that stands there twice is a slip, not a second thought.
    """

    def fetch_alias(self) -> None:
        """Refuses an alias, and what looks like one."""
        raise yaml.YAMLError(
            "an alias (*name) stands in it: write the value itself, and a pattern in quotation marks: '*.conv1'"
        )

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuses a key that is there already."""
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise yaml.YAMLError(f"key {twice[0]!r} stands there twice")
        return super().construct_mapping(node, deep)


def _from_yaml(text: str, otherwise: str) -> Any:
    """The values in a text that may be anybody's; `otherwise` is what an error begins with."""
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        # the reader itself stumbles over a 13th month, a whole number that is none, and lists in lists without end
        raise InputError(f"{otherwise}: {' '.join(str(error).split())}") from error


def _file(name: str | Path, folders: Iterable[Path], but: Path | None = None) -> Path:
    """The file of a name: a path to one, or one of the library's; never `but` itself."""
    given, folders = Path(name), list(dict.fromkeys(folders))
    if given.suffix in (".yaml", ".yml"):
        found = [path.resolve() for path in (given, *(folder / given for folder in folders)) if path.is_file()]
        for path in found:
            if path != but:
                return path
        raise InputError(f"{given} extends itself" if found else f"no such file: {given}")
    for folder in folders:
        if (path := folder / f"{name}.yaml").is_file() and path != but:
            return path
    if given.is_file():
        raise InputError(f"{given} is no study: a file of one has a name that ends in .yaml")
    known = {path.stem for folder in folders for path in folder.glob("*.yaml")}
    raise unknown("training" if folders == [TRAININGS] else "study", str(name), known)


def _about(path: Path) -> str:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").partition(":")[2].strip() or first.removeprefix("#").strip()

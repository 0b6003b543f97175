"""Scores by the values of a column: each group is scored as if it were alone."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import torch

import calibrant
from calibrant.errors import InvalidInputError
from calibrant.metrics import Groups, Scorecard
from calibrant.predictions import Predictions

SITES = ["north", "south", "east"]


def rows_with(column: Any, n_classes: int = 3, seed: int = 200, weights: Any = None) -> Predictions:
    """Predictions with a column "site", and a column "w" where there are weights."""
    n = len(column)
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((0.6 * logits).softmax(1), 1, generator=generator).squeeze(1)
    columns = {"site": column} if weights is None else {"site": column, "w": weights}
    return Predictions.from_logits(logits, labels, columns=columns)


def sites(n: int, seed: int = 201) -> list[str]:
    chosen = torch.randint(0, len(SITES), (n,), generator=torch.Generator().manual_seed(seed))
    return [SITES[i] for i in chosen.tolist()]


def assert_same(card: Scorecard, other: Scorecard) -> None:
    assert card.n_rows == other.n_rows
    assert card.values() == pytest.approx(other.values(), abs=1e-12)


def only(rows: Predictions, column: list[Any], value: object) -> Predictions:
    return rows[torch.tensor([i for i, got in enumerate(column) if got == value])]


# Values


@pytest.mark.parametrize("n_classes", [2, 3])
def test_each_group_as_if_alone(n_classes: int) -> None:
    column = sites(300)
    rows = rows_with(column, n_classes)
    groups = calibrant.score(rows, by="site")
    assert isinstance(groups, Groups)
    assert groups.by == "site"
    assert list(groups) == sorted(SITES)
    assert len(groups) == 3
    for site in SITES:
        assert_same(groups[site], calibrant.score(only(rows, column, site)))
        assert groups[site].interval("ece") == calibrant.score(only(rows, column, site)).interval("ece")
    assert_same(groups.overall, calibrant.score(rows))
    assert sum(card.n_rows for card in groups.values()) == groups.overall.n_rows == 300


def test_options_reach_every_group() -> None:
    column = sites(200)
    weights = torch.rand(200, generator=torch.Generator().manual_seed(202), dtype=torch.float64).tolist()
    rows = rows_with(column, weights=weights)
    groups = calibrant.score(rows, by="site", metrics=["ece", "adaece"], n_bins=7, weights="w")
    for site in SITES:
        alone = calibrant.score(only(rows, column, site), metrics=["ece", "adaece"], n_bins=7, weights="w")
        assert_same(groups[site], alone)
        assert groups[site].names == ("ece", "adaece")
        assert groups[site].n_bins == 7
    groups = calibrant.score(rows_with(["a", "b", "a", "b"], weights=[1.0, 0.0, 2.0, 0.0]), by="site", weights="w")
    assert list(groups) == ["a"]
    assert groups.overall.n_rows == 2


@pytest.mark.parametrize(
    ("column", "order"),
    [
        ([3, 1, 2, 10, 1], [1, 2, 3, 10]),
        ([2.5, -1.0, 2.5, 0.0, 10.0], [-1.0, 0.0, 2.5, 10.0]),
        ([True, False, True, True, False], [False, True]),
        (["b", None, "a", "b", None], ["a", "b", None]),
        ([None, 2, 1, None, 2], [1, 2, None]),
        ([None] * 5, [None]),
    ],
    ids=["integers", "floats", "booleans", "strings", "integers with nulls", "nulls"],
)
def test_groups_in_the_order_of_their_values(column: list[Any], order: list[Any]) -> None:
    rows = rows_with(pa.array(column))
    for groups in (calibrant.score(rows, by="site"), calibrant.score([rows[:2], rows[2:]], by="site")):
        assert list(groups) == order
        assert {group: card.n_rows for group, card in groups.items()} == {value: column.count(value) for value in order}


def test_dictionary_columns() -> None:
    """Nulls among the indices or in the dictionary, a value that no row has, a value twice."""
    for indices, values, counts in (
        ([0, 1, None, 0, 1, None], ["a", "b"], {"a": 2, "b": 2, None: 2}),
        ([0, 1, 2, 0, 1, 2], ["a", "b", None], {"a": 2, "b": 2, None: 2}),
        ([0, 1, 0, 0, 1, 1], ["a", "b", "c"], {"a": 3, "b": 3}),
        ([0, 1, 2, 0, 1, 2], ["a", "b", "a"], {"a": 4, "b": 2}),
    ):
        column = pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(values))
        groups = calibrant.score(rows_with(column), by="site")
        assert {group: card.n_rows for group, card in groups.items()} == counts


def test_nan_is_one_group() -> None:
    rows = rows_with(pa.array([1.0, float("nan"), 1.0, float("nan")]))
    for source in (rows, [rows[:2], rows[2:]]):
        assert [card.n_rows for card in calibrant.score(source, by="site").values()] == [2, 2]


def test_worst_group() -> None:
    """Confidence 0.8 everywhere; north is always correct, south half of the time, east never."""
    rates = {"north": [0] * 4, "south": [0, 0, 1, 1], "east": [1] * 4}
    column = [site for site in rates for _ in range(4)]
    labels = [label for labels in rates.values() for label in labels]
    rows = Predictions.from_probs(torch.tensor([[0.8, 0.2]] * 12).double(), labels, columns={"site": column})
    groups = calibrant.score(rows, by="site")
    for metric in ("accuracy", "ece", "nll", "aurc", "kse"):
        assert groups.worst(metric) == ("east", groups["east"]), metric
    assert groups.worst("underconfidence")[0] == "north"
    assert groups.worst("nll_on_errors")[0] in ("south", "east")  # north has no error, so no value


# Streams and sums


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 37, 100])
def test_streamed_groups(size: int) -> None:
    column = [None if i % 11 == 0 else site for i, site in enumerate(sites(150))]
    rows = rows_with(pa.array(column))
    exact = calibrant.score(rows, by="site")
    streamed = calibrant.score((rows[i : i + size] for i in range(0, 150, size)), by="site")
    assert list(streamed) == list(exact)
    pairs = [(streamed.overall, exact.overall), *((streamed[group], exact[group]) for group in exact)]
    for card, wanted in pairs:
        assert card.n_rows == wanted.n_rows
        for part in ("means", "top_bins", "class_bins"):
            assert torch.equal(getattr(card, part).count, getattr(wanted, part).count), part
        for name in card.names:
            assert card.get(name) == pytest.approx(wanted.get(name), abs=card.error_bound(name) + 1e-6), name


def test_adding_groups() -> None:
    a, b = rows_with(["x", "y"]), rows_with(["y", "a"], seed=203)
    total = calibrant.score(a, by="site") + calibrant.score(b, by="site")
    assert list(total) == ["a", "x", "y"]
    assert [card.n_rows for card in total.values()] == [1, 1, 2]
    assert calibrant.score(a, by="site")["y"].n_rows == 1
    assert_same(total["a"], calibrant.score(b[1:]))
    assert_same(total["y"], calibrant.score(Predictions.concat([a[1:], b[:1]])))


def test_sums_over_classes_are_float64() -> None:
    """Of equal rows: a sum of 50,000 float32 thirds would be off by 1e-8 of itself."""
    card = calibrant.score(
        Predictions.from_logits(torch.zeros(50_000, 3), torch.zeros(50_000).long()), metrics=["cece"]
    )
    one = calibrant.score(Predictions.from_logits(torch.zeros(1, 3), [0]), metrics=["cece"]).class_bins.confidence.sum(
        1
    )
    torch.testing.assert_close(card.class_bins.confidence.sum(1), 50_000 * one, rtol=1e-12, atol=0.0)


def test_rows_without_a_label_are_left_out_and_counted() -> None:
    rows = rows_with(sites(300), weights=torch.rand(300, generator=torch.Generator().manual_seed(1)).tolist())
    unknown = torch.arange(300) % 3 == 0
    some = replace(rows, labels=rows.labels.masked_fill(unknown, -1))
    batches = [some[:100], replace(some[100:200], labels=torch.full((100,), -1)), some[200:]]
    for options in ({}, {"weights": "w"}, {"cluster": "site"}):
        found, wanted = calibrant.score(some, **options), calibrant.score(rows[~unknown], **options)
        assert (found.n_rows, found.n_unlabelled, wanted.n_unlabelled) == (200, 100, 0)
        assert found.values() == wanted.values()
    streamed = calibrant.score(batches)
    labelled = [rows[:100][~unknown[:100]], rows[200:][~unknown[200:]]]
    assert streamed.values() == calibrant.score(labelled).values()
    assert streamed.n_unlabelled == 300 - streamed.n_rows == int(unknown[:100].sum() + 100 + unknown[200:].sum())
    lost = replace(rows, labels=rows.labels.masked_fill(torch.tensor([s == "east" for s in sites(300)]), -1))
    groups = calibrant.score([lost[:100], lost[100:]], by="site")
    assert set(groups) == {"north", "south"}
    assert groups.overall.n_unlabelled == sites(300).count("east")
    by_site = calibrant.score(batches, by="site")
    assert sum(card.n_unlabelled for card in by_site.values()) == by_site.overall.n_unlabelled
    other = replace(some, logits=some.logits * 2)
    assert calibrant.compare(some, other) == calibrant.compare(some[~unknown], other[~unknown])


def test_confidence_and_entropy_need_no_label() -> None:
    rows = rows_with(sites(50), weights=[1.0] * 50)
    bare = replace(rows, labels=torch.full((50,), -1))
    names = ["confidence", "entropy"]
    for options in ({}, {"weights": "w"}, {"cluster": "site"}):
        found, wanted = (calibrant.score(each, metrics=names, **options) for each in (bare, rows))
        assert found.values() == wanted.values()
        assert [found.interval(name) for name in names] == [wanted.interval(name) for name in names]
        assert (found.n_rows, found.n_unlabelled) == (50, 0)
    assert calibrant.score([bare[:20], bare[20:]], by="site", metrics=names).overall.n_rows == 50
    for call in (lambda: calibrant.score(bare), lambda: calibrant.score([bare, bare], metrics=["ece", "entropy"])):
        with pytest.raises(
            InvalidInputError, match=r"no row with a label: .*calibrant estimate.*confidence and entropy"
        ):
            call()
    with pytest.raises(InvalidInputError, match="no row with a label"):
        calibrant.compare(bare, bare)

"""Words for reductions, new and old."""

import pytest

import ddpflow
from ddpflow.autograd.ops.reduction import legacy_reduction, reduce_loss


def test_the_deprecated_arguments_win():
    """``reduce=False`` is "none"; ``size_average=False`` is "sum"."""
    assert legacy_reduction("mean", None, False) == "none"
    assert legacy_reduction("mean", False, None) == "sum"
    assert legacy_reduction("none", None, True) == "mean"
    assert legacy_reduction("sum") == "sum"


def test_an_unknown_word_is_refused():
    """The error holds the word and what there is."""
    with pytest.raises(ValueError, match="'average'.*'mean'"):
        legacy_reduction("average")


def test_reduces():
    """Mean, sum, or nothing."""
    x = ddpflow.tensor([1.0, 2.0, 6.0])
    assert [reduce_loss(x, r).tolist() for r in ("mean", "sum", "none")] == [3.0, 9.0, [1.0, 2.0, 6.0]]

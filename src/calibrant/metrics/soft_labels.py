"""Soft labels: predictions scored against distributions of labels, as weighted rows that are clustered by their row."""

from calibrant.predictions import LABEL_ROW, LABEL_WEIGHT, Predictions


def expand_soft_labels(
    predictions: Predictions, weights: str | None, cluster: str | None, *, first_row: int = 0
) -> tuple[Predictions, str | None, str | None]:
    """Labelled rows, with the columns of their weights and clusters; rows without soft labels are returned as they are.

    The labels of one row are not independent, so that its weighted labels are a cluster; a cluster of the user's
    contains whole rows.
    """
    if not predictions.has_soft_labels:
        return predictions, weights, cluster
    return predictions.expand_labels(weights=weights, first_row=first_row), LABEL_WEIGHT, cluster or LABEL_ROW

"""The calibrators that predictions went through, from their metadata: what is fitted to them is for the same ones."""

from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions


def calibrators_of(predictions: Predictions) -> tuple[str, ...]:
    """The calibrators of the logits, the last first: names, and fingerprints of the rows of their fits."""
    found, record = [], predictions.metadata.get("calibrator")
    while isinstance(record, dict):
        found.append(f"{record.get('name')} {record.get('fitted_on')}")
        record = record.get("after")
    return (*found, *([str(record)] if record else []))  # what another program wrote


def check_same_calibrators(fitted: tuple[str, ...], got: tuple[str, ...]) -> None:
    if fitted != got:
        wanted, found = (
            " after ".join(name.partition(" ")[0] for name in names) or "no calibrator" for names in (fitted, got)
        )
        other = f"{found} that was fitted to other rows" if wanted == found else found
        raise InvalidInputError(f"predictions must be calibrated as those of the fit, by {wanted}, got {other}")

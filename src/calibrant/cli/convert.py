"""`calibrant convert`: predictions of any files as one Parquet file."""

from typing import Any

from calibrant.cli.options import File, Output, SmallFile, Switch, Words
from calibrant.cli.output import status
from calibrant.errors import InvalidInputError, printable


def convert(
    *paths: File,
    output: Output,
    label: str | None = None,
    probs: Words = (),
    logits: Words = (),
    log_probs: Words = (),
    positive_probs: str | None = None,
    confidence: str | None = None,
    correct: str | None = None,
    prediction: str | None = None,
    class_names: Words = (),
    nan_is_unknown: Switch = False,
    text: Words = (),
    columns: SmallFile | None = None,
    match_names: Switch = False,
) -> None:
    """Convert predictions in files of any format to the Parquet file that all commands read.

    Reads .csv and .tsv (also .gz), .jsonl, .parquet, .arrow, .feather, .npz and .npy, in bounded memory where the
    format allows it. Columns whose names say what they are (label, y, target; prob_cat, p_0, logit_0, probs) are found;
    what was found is printed first. Nothing is guessed from values.

    Parameters
    ----------
    paths
        Files or globs, with the same classes and columns.
    output
        The Parquet file to write.
    label
        The column of the labels; for a .npy file, the .npy file of its labels.
    probs
        The columns of the probabilities of all classes, or a pattern such as 'p_*', or one column of lists.
    logits
        The same for logits.
    log_probs
        The same for log-probabilities.
    positive_probs
        The column of the probability of class 1, of two classes.
    confidence
        The column of the confidence of the predicted class, where there are no other probabilities.
    correct
        With it: the column of whether the prediction is correct, true or false, 1 or 0.
    prediction
        With it: the column of the predicted class; it is correct where it is the label.
    class_names
        The names of the classes, in the order of the columns or lists.
    nan_is_unknown
        A label NaN is not known yet; otherwise it is an error.
    text
        Columns of a text file that are texts, whatever they look like, such as ids with leading zeros.
    columns
        A TOML file whose table [columns] has any of these options.
    match_names
        Reorder the classes of files that have the same class names in another order; otherwise this is an error.
    """
    if not paths:
        raise InvalidInputError("give at least one file or glob of predictions")
    from calibrant import reading

    options: dict[str, Any] = {
        "label": label,
        "probs": probs or None,
        "logits": logits or None,
        "log_probs": log_probs or None,
        "positive_probs": positive_probs,
        "confidence": confidence,
        "correct": correct,
        "prediction": prediction,
        "class_names": class_names or None,
        "nan_is_unknown": nan_is_unknown,
        "text": text or None,
        "columns": columns,
    }

    def say(line: str) -> None:
        print(printable(line), flush=True)

    with status("converting"):
        n_rows = reading.convert(paths, output, match_names=match_names, say=say, **options)
    print(printable(f"{output}: {n_rows:,} rows"))

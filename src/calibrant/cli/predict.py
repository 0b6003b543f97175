"""`calibrant predict`: predictions of a trained run, or of your own model, on any split or shifted test."""

from pathlib import Path

from calibrant._names import check_choice, known_names
from calibrant.cli.extras import needs_extras
from calibrant.cli.options import File, Integer, Json, Output, Switch, Words
from calibrant.cli.output import counting_bar, print_json
from calibrant.errors import InvalidInputError, printable
from calibrant.runs import RunFolder


def predict(
    source: File,
    *splits: str,
    output: Output | None = None,
    data: str | None = None,
    root: File | None = None,
    image_size: Integer | None = None,
    features: Switch = False,
    views: Words = (),
    device: str = "auto",
    as_json: Json = False,
) -> None:
    """Write Parquet files of predictions, one for each split or shifted test.

    Parameters
    ----------
    source
        The folder of a trained run; or file.py:name or module:name of your own model: a torch module, a function that
        returns one, or a function from images (float, n x c x h x w, normalised with mean and std 0.5) to logits.
    splits
        What to predict: test, fog-3, fog for all of its severities, val+fog for the validation split under them; by
        default every split but the training one, and every shifted test.
    output
        The folder to write to, by default that of the run's predictions.
    data
        The data set, for your own model.
    root
        The folder of the data sets, by default CALIBRANT_DATA or data.
    image_size
        The side in pixels to which image files are resized, for your own model.
    features
        Store the penultimate features.
    views
        Average over views of each image: flip (also the mirror image), crop5 (the four corners and the centre of the
        padded image), or both as flip,crop5. Needs --output; flip needs a run that was trained with mirror images.
    device
        Where to compute: auto, cpu, cuda or mps.
    as_json
        Print JSON instead of the names of the files.
    """
    is_own = ":" in source and not Path(source).exists()
    if is_own and (data is None or output is None):
        raise InvalidInputError("your own model needs --data and --output")
    if not is_own and (data is not None or image_size is not None):
        raise InvalidInputError(f"--data and --image-size are for your own models; {source} has its config.json")
    with needs_extras("predicting", "train"):
        if not is_own:
            RunFolder(Path(source)).check_config()
        elif data is not None:
            check_choice("data", data, known_names("DATASETS"))
        from calibrant.training.predicting import predict_model, predict_run

    names = tuple(name for word in views for name in word.split(","))
    if not is_own:
        files = predict_run(
            source,
            splits,
            output=output,
            root=root,
            features=features,
            views=names,
            device=device,
            bar=counting_bar,
        )
    else:
        assert data is not None
        assert output is not None
        files = predict_model(
            source,
            data,
            splits,
            output=output,
            root=root,
            image_size=image_size,
            features=features,
            views=names,
            device=device,
            bar=counting_bar,
        )
    if as_json:
        print_json([str(path) for path in files])
    else:
        for path in files:
            print(printable(str(path)))

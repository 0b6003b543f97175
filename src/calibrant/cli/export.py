"""`calibrant export`: a calibrator as an ONNX file, for a runtime without torch."""

from calibrant._paths import check_exists
from calibrant.cli.options import File, Output
from calibrant.cli.output import status
from calibrant.errors import printable


def export(calibrator: File, *, output: Output) -> None:
    """Write a calibrator as an ONNX file, for ONNX Runtime and other runtimes without torch.

    The graph maps float32 logits (n, k), and the features or the score that the calibrator needs, to float32
    calibrated_logits (n, k), for any number of rows. All calibrators but set_temperature can be exported.

    Parameters
    ----------
    calibrator
        The JSON file that `calibrant fit` wrote.
    output
        The ONNX file to write.
    """
    check_exists(calibrator)
    from calibrant.calibrators import load_calibrator

    fitted = load_calibrator(calibrator)
    with status(f"exporting {fitted.name}"):
        fitted.to_onnx(output)
    inputs = ", ".join(fitted.inputs)
    print(printable(f"{output}: {fitted.name} of {fitted.n_classes} classes, from {inputs} to calibrated_logits"))

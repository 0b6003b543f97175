"""Names from a fixed list: a check that suggests the nearest known name, without torch."""

import sys
from collections.abc import Collection, Iterable
from difflib import get_close_matches

from calibrant.errors import UnknownNameError

MAX_TEXT = 100  # characters of a value in a message
# The keys of the tables of these names: a command checks them before it imports torch.
CALIBRATORS = (
    "identity",
    "temperature",
    "temperature_grid",
    "ensemble_temperature",
    "platt",
    "beta",
    "spline",
    "conditional_temperature",
    "isotonic_multiclass",
    "svs",
    "vector",
    "sms",
    "matrix",
    "dirichlet",
    "histogram",
    "bbq",
    "venn_abers",
    "isotonic",
    "perturbed_temperature",
    "domain_temperature",
    "set_temperature",
    "transcal",
    "label_shift",
    "density_aware",
)
CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
    "speckle_noise",
    "gaussian_blur",
    "spatter",
    "saturate",
)
DATASETS = (
    "fashion_mnist_mini",
    "digits",
    "fashion_mnist",
    "mnist",
    "cifar10",
    "cifar100",
    "tiny_imagenet",
    "camelyon17",
    "iwildcam",
    "fmow",
    "image_folder",
)
CORRUPTED_TESTS = ("cifar10_c", "cifar100_c", "tiny_imagenet_c")
ESTIMATORS = ("set_temperature", "confidence", "doc", "atc_confidence", "atc_entropy", "cot")
FIGURES = (
    "gibbs",
    "severity",
    "samples",
    "reliability",
    "local_constraints",
    "feature_norm",
    "label_smoothing",
    "risk_coverage",
    "heat_map",
    "calibrated",
)
LOSSES = (
    "cross_entropy",
    "focal",
    "inverse_focal",
    "poly",
    "avuc",
    "soft_avuc",
    "maxent_mean",
    "maxent_variance",
    "maxent_mean_variance",
    "maxent_prior",
    "flsd",
    "dual_focal",
    "mmce",
    "mdca",
    "mbls",
    "label_relaxation",
)
METRICS = (
    "accuracy",
    "confidence",
    "ece",
    "mce",
    "rmsce",
    "adaece",
    "l2ce",
    "kse",
    "smece",
    "overconfidence",
    "underconfidence",
    "cece",
    "nll",
    "brier",
    "nll_on_errors",
    "brier_on_errors",
    "entropy",
    "aurc",
    "ece_positive",
    "mce_positive",
    "rmsce_positive",
    "adaece_positive",
    "l2ce_positive",
    "kse_positive",
    "smece_positive",
)
MODELS = ("resnet18", "resnet50", "densenet121", "narrow_resnet", "small_resnet", "small_convnet", "mlp")
OOD_SCORES = (
    "max_probability",
    "entropy",
    "max_logit",
    "energy",
    "nearest_neighbors",
    "mahalanobis",
    "mutual_information",
)
SELECTORS = ("fixed_sequence", "sgr")
SET_METHODS = ("lac", "aps", "raps")
TABLES = ("1", "2", "appendix")
# What conditions of --fail-if may name, on estimates and on prediction sets.
ESTIMATED = ("accuracy", "confidence", "gap", "ece", "ece_after", "temperature")
SET_SCORES = ("coverage", "mean_size", "empty", "single", "worst_class", "worst_group")
# Tables to which users add entries of their own, and the packages that have them.
EXTENSIBLE = {
    "CALIBRATORS": "calibrant.calibrators",
    "CORRUPTIONS": "calibrant.corruptions",
    "DATASETS": "calibrant.data.table",
    "LOSSES": "calibrant.losses",
    "METRICS": "calibrant.metrics",
    "MODELS": "calibrant.models",
    "OOD_SCORES": "calibrant.ood",
}


def known_names(table: str) -> tuple[str, ...]:
    """The keys of a table, with those that users added, for which they had to import it."""
    package = sys.modules.get(EXTENSIBLE[table])
    return tuple(getattr(package, table, globals()[table]))


def check_choice(argument: str, value: str, known: Iterable[str]) -> str:
    known = list(known)
    if isinstance(value, str) and value in known:  # an array would be compared element by element
        return value
    raise UnknownNameError(f"unknown {argument} {value!r}; {suggestion(value, known)}")


def brief(value: object) -> str:
    """A value in a message; of a long text, as after a quote that stays open, its beginning."""
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"{value[:MAX_TEXT]!r} … ({len(value):,} characters)"
    return repr(value)


def common_start(names: Collection[str]) -> str:
    """What all names begin with."""
    first, last = min(names, default=""), max(names, default="")
    return next((first[:place] for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), first)


def suggestion(value: str, known: Iterable[str]) -> str:
    """The nearest known name, or all of them."""
    known = list(known)
    comparable = isinstance(value, str) and len(value) <= MAX_TEXT
    near = get_close_matches(value, known, n=1, cutoff=0.5) if comparable else []
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"

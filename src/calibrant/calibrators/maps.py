"""Functions of logits and features that the modules compute; they script and export."""

import math

import torch
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]

INF_FLOOR = -1e3  # relative to the largest logit, in place of −inf
NEWTON_STEPS = 30
MIN_SET_ROWS = 20


def match_dtype(calibrated: Tensor, logits: Tensor) -> Tensor:
    """Float64 for float64 logits, otherwise float32."""
    return calibrated if logits.dtype == torch.float64 else calibrated.float()


def scale_logits(logits: Tensor, temperature: Tensor) -> Tensor:
    """The logits divided by T, less the largest of each row: it becomes 0, and no other can round to it."""
    z = logits.to(temperature.dtype)
    return match_dtype((z - z.amax(1, keepdim=True)) / temperature, logits)


def restore_argmax(calibrated: Tensor, logits: Tensor) -> Tensor:
    """Raise the predicted class above another that rounding made equal to it."""
    top = logits.argmax(1, keepdim=True)
    best = calibrated.amax(1, keepdim=True)
    above = torch.where(calibrated.argmax(1, keepdim=True) == top, best, best + best.abs() * 1e-6 + 1e-30)
    return calibrated.scatter(1, top, above)


def entropy(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs.clamp(min=-1e4)).sum(1)


def floor_logits(logits: Tensor, floor: float = INF_FLOOR) -> Tensor:
    """Finite numbers in place of −inf."""
    return torch.where(logits == float("-inf"), logits.amax(1, keepdim=True) + floor, logits)


def log_odds(logits: Tensor) -> Tensor:
    """(n,) of class 1 of two, finite: they tell rows apart whose probabilities both round to 1."""
    return (logits[:, 1] - logits[:, 0]).nan_to_num()


def logit_norm(logits: Tensor) -> Tensor:
    """Euclidean norm of the logits minus their mean."""
    z = floor_logits(logits)
    return (z - z.mean(1, keepdim=True)).square().sum(1).sqrt()


def row_statistics(logits: Tensor) -> Tensor:
    """(n, 2) entropy divided by log K, and confidence."""
    log_probs = logits.log_softmax(1)
    return torch.stack([entropy(log_probs) / math.log(logits.shape[1]), log_probs.amax(1).exp()], dim=1)


def prior_entropy(prior: Tensor, n_rows: Tensor) -> Tensor:
    """(m,) entropy of class proportions (m, k) in samples of (m,) rows, divided by log K.

    The entropy of a sample is less than that of its population; Miller and Madow's (K − 1)/(2n) is added.
    """
    k = prior.shape[1]
    return (entropy(prior.log()) + (k - 1) / (2.0 * n_rows)) / math.log(k)


def monomials(x: Tensor, factors: Tensor) -> Tensor:
    """(m, p) products of three factors each: the columns of (m, d) that ``factors`` (p, 3) counts from 1, 0 being 1.

    >>> monomials(torch.tensor([[2.0, 5.0]]), torch.tensor([[0, 0, 1], [0, 1, 2], [1, 1, 1]]))
    tensor([[ 2., 10.,  8.]])
    """
    return torch.cat([torch.ones_like(x[:, :1]), x], dim=1)[:, factors].prod(2)


def shrink_to_origin(
    deviation: Tensor, n_rows: Tensor, precision: Tensor, noise: Tensor, least: int = MIN_SET_ROWS
) -> Tensor:
    """Deviations (m, d) of the statistics of sets from those of the clean set, shrunk by their noise; a few rows: to 0.

    It is 0 as long as its squared length, in units of the noise of that many rows, is below a limit: the non-negative
    garrote (Breiman 1995). The last statistic, the entropy of a mean, has noise of the second order too.

    Args:
        precision: (d, d) inverse of the covariance of what a row adds to the statistics.
        noise: (3,) the number of clean rows, the second-order variance times n², the limit.
    """
    rows = 1.0 / (1.0 / n_rows + 1.0 / noise[0])
    scaled = deviation @ precision
    second = noise[1] / rows  # added to the last diagonal element of the covariance: Sherman and Morrison's formula
    less = second * scaled[:, -1].square() / (1.0 + second * precision[-1, -1])
    length = rows * ((scaled * deviation).sum(1) - less)
    kept = (1.0 - noise[2] / length.clamp(min=1e-12)).clamp(min=0.0)
    return deviation * torch.where(n_rows < least, torch.zeros_like(kept), kept).unsqueeze(1)


def cubic_of_set(
    statistics: Tensor, n_rows: Tensor, scale: Tensor, precision: Tensor, noise: Tensor, factors: Tensor
) -> Tensor:
    """(m, p) `monomials` of the statistics (m, d) of sets, standardized and within the range of the fit.

    Args:
        scale: (4, d) origin, spread, and the least and greatest standardized values.
    """
    deviation = shrink_to_origin(statistics - scale[0], n_rows, precision, noise)
    standard = torch.maximum(torch.minimum(deviation / scale[1], scale[3]), scale[2])
    return monomials(standard, factors)


def log_mahalanobis(features: Tensor, means: Tensor, axes: Tensor, variances: Tensor) -> Tensor:
    """(n,) logarithm of the Mahalanobis distance from the nearest of the means (c, f) of low-rank Gaussians.

    They have one variance along each of their axes (f, r), and the last one in all directions orthogonal to them.
    """
    centre = means.mean(0)
    x, m = features.to(means.dtype) - centre, means - centre
    weights = 1.0 / variances[:-1] - 1.0 / variances[-1]
    along = weighted_squares(x @ axes, m @ axes, weights)
    squares = weighted_squares(x, m, torch.ones_like(centre)) / variances[-1] + along
    return 0.5 * squares.amin(1).clamp(min=1e-12).log()


def weighted_squares(x: Tensor, m: Tensor, weights: Tensor) -> Tensor:
    """(n, c) sums of weighted squares of the differences of rows (n, d) and (c, d)."""
    return (x.square() @ weights).unsqueeze(1) + m.square() @ weights - 2.0 * (x * weights) @ m.T


def n_below(knots: Tensor, x: Tensor, equal: bool = False) -> Tensor:
    """`torch.searchsorted`: how many sorted knots are below x, or equal to it; in an ONNX graph, by comparisons."""
    # A block of its own: TorchScript cannot compile the second question, and skips it only there.
    if not is_scripting():  # noqa: SIM102
        if torch.onnx.is_in_onnx_export():
            return bisect(knots, x, equal)
    return torch.searchsorted(knots, x, right=equal)


def bisect(knots: Tensor, x: Tensor, equal: bool) -> Tensor:
    """The same by binary search, of as many steps as the number of knots has digits: ONNX has no searchsorted.

    >>> bisect(torch.tensor([1.0, 2.0, 2.0]), torch.tensor([0.0, 2.0, 3.0]), equal=False)
    tensor([0, 1, 3])
    """
    n_knots = knots.shape[-1]
    found = torch.zeros_like(x, dtype=torch.int64)
    for digit in range(n_knots.bit_length() - 1, -1, -1):
        more = found + 2**digit
        knot = knots.gather(-1, more.clamp(max=n_knots) - 1)
        below = knot <= x if equal else knot < x
        found = torch.where(below & (more <= n_knots), more, found)
    return found


def interpolate(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Linear interpolation at (c, n) points between (c, m) knots, constant beyond them."""
    right = n_below(knots, x.contiguous()).clamp(1, knots.shape[1] - 1)
    x0, x1 = knots.gather(1, right - 1), knots.gather(1, right)
    share = torch.where(x1 > x0, (x - x0) / (x1 - x0), torch.zeros_like(x)).clamp(0.0, 1.0)
    y0 = values.gather(1, right - 1)
    return y0 + share * (values.gather(1, right) - y0)


def scale_for_confidence(logits: Tensor, confidence: Tensor, n_steps: int = NEWTON_STEPS) -> Tensor:
    """(n,) β with max softmax(β z) equal to the confidence, which is clamped to slightly above 1/K.

    With u = z − max z, log Σ_{j ≠ top} exp(β u_j) = log(1/confidence − 1). The left side is convex and decreases, so
    Newton's method comes up to the root from β = 0.
    """
    n_classes = logits.shape[1]
    u = (logits - logits.amax(1, keepdim=True)).clamp(min=-1e15)
    others = torch.zeros_like(u).scatter(1, logits.argmax(1, keepdim=True), float("-inf"))
    reachable = confidence.clamp(min=1.0 / n_classes + 1e-3 * (1.0 - 1.0 / n_classes))
    wanted = ((1.0 - reachable) / reachable).log()
    scale = torch.zeros_like(confidence)
    for _ in range(n_steps):
        weighted = scale.unsqueeze(1) * u + others
        slope = (weighted.softmax(1) * u).sum(1).clamp(max=-1e-12)
        scale = (scale - (weighted.logsumexp(1) - wanted) / slope).clamp(1e-12, 1e12)
    return scale


def mean_distance(features: Tensor, bank: Tensor, k: int) -> Tensor:
    """Mean Euclidean distance of each row to its k nearest rows of the bank, all normalized to length 1."""
    return nearest_mean(square_distances(features, bank), k)


def square_distances(features: Tensor, bank: Tensor) -> Tensor:
    """(n, m) squared distances of rows, normalized to length 1, from those of the bank."""
    rows = nn.functional.normalize(features.to(bank.dtype), dim=1)
    return (rows.square().sum(1, keepdim=True) + bank.square().sum(1) - 2.0 * rows @ bank.T).clamp(min=0.0)


def nearest_mean(squares: Tensor, k: int) -> Tensor:
    """(n,) mean of the k least distances, from their squares."""
    return squares.topk(k, dim=1, largest=False).values.sqrt().mean(1)

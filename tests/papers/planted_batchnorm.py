"""Worlds in which a claim on seed 004 comes out otherwise."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
from planted_pieces import Lying

from relunorm.batchnorm.gram import gram_step, kernel_gram
from relunorm.batchnorm.random_nets import propagate
from relunorm.papers.batchnorm import both_signs, positive_entries, push, relu
from relunorm.papers.batchnorm.invariance import (
    invariant_alpha,
    invariant_gram,
    theorem14,
)
from relunorm.papers.batchnorm.theory.fixed_points import odd_state, symmetric_state
from relunorm.papers.batchnorm.theory.full_rank import rank_bounds, sample_neuron_counts
from relunorm.papers.batchnorm.theory.tree_model import (
    Tree,
    negative_transformation,
    positive_transformation,
)
from relunorm.papers.batchnorm.theory.weight_cells import gamma
from relunorm.papers.batchnorm.training import train_shallow


def many_neurons(X, trials, **options):
    """Twenty times as many neurons are needed."""
    found = sample_neuron_counts(X, trials, **options)
    return replace(found, counts=20 * found.counts, mean=20 * found.mean)


def rising_gamma(X):
    """The more points, the larger the smallest cell."""
    return Lying(gamma(X), gamma=0.01 * len(X))


def other_bounds(printed=1.0, sharper=1.0, sure=None):
    def wrong(n, g):
        found = rank_bounds(n, g)
        lies = {"printed": printed * found.printed, "sharper": sharper * found.sharper}
        if sure is not None:
            lies["probability"] = lambda alpha: sure(found, alpha)
        return Lying(found, **lies)

    return wrong


def shuffled(X, *args, **kwargs):
    """The points come out in another order."""
    order = np.random.default_rng(0).permutation(len(X))
    return propagate(np.asarray(X)[order], *args, **kwargs)


def longest_first(X, *args, **kwargs):
    """The longest point is three times as long."""
    X = np.array(X)
    X[np.argmax(np.linalg.norm(X, axis=1))] *= 3
    return propagate(X, *args, **kwargs)


def echoing(X, *args, **kwargs):
    """One neuron is as active for every point as any is for the odd one."""
    found = propagate(X, *args, **kwargs)
    values = np.array(found.activations)
    values[:, 0] = values.max()
    return replace(found, activations=values)


def leaning(X, *args, **kwargs):
    """The odd point leans towards the others."""
    found = propagate(X, *args, **kwargs)
    last = np.array(found.grams[-1])
    norms = np.sqrt(np.diag(last))
    last = last + 0.3 * np.outer(norms, norms)
    return replace(found, grams=np.array([*found.grams[:-1], last]))


@cache
def other_parts(**forced):
    """Networks with other parts of batch norm than asked for."""

    def wrong(X, layers, width=1000, nl="relu", recenter=True, rescale=True, **options):
        given = {"nl": nl, "recenter": recenter, "rescale": rescale, **options, **forced}
        return propagate(X, layers, width, **given)

    return wrong


def tilted(X, layers, *args, **options):
    """At infinite width the symmetric batch is none: one point is longer."""
    if options.get("method") == "infinite":
        X = np.asarray(X) * np.r_[5.0, np.ones(len(X) - 1)][:, None]
    return propagate(X, layers, *args, **options)


def unchanged(z):
    return z


def same_sign(z):
    """Both points are always on together, so the second never waits."""
    return relu(z) if z.ndim < 3 else relu(z[..., :1]) + 0 * z


def by_method(**forced):
    """Weights of another law than the batch's span."""

    def wrong(X, *args, **options):
        if options.get("method") == "weights" and "nl" not in options:
            return propagate(X, *args, **{**options, **forced})
        return propagate(X, *args, **options)

    return wrong


@cache
def other_tree(change=lambda gram: gram, **lies):
    """Trees whose Gram matrices are changed at every depth, and whose clusters lie."""

    class Planted:
        def __init__(self, x, truth=None):
            self.truth = Tree(x) if truth is None else truth

        def run(self, depth):
            return Planted(None, self.truth.run(depth))

        def jump(self, depth):
            return Planted(None, self.truth.jump(depth))

        def gram(self, normalize=False):
            found = change(self.truth.gram(normalize=True))
            return found if normalize or SLOW in lies else found * self.truth.gram().trace()

        def clusters(self):
            return Lying(self.truth.clusters(), **lies)

        def stability_layer(self):
            return self.truth.stability_layer()

    return Planted


SLOW = "norms do not fall"


def towards_the_largest(gram):
    """Every point moved a little towards the last."""
    mix = np.eye(len(gram)) + 0.3 * np.eye(len(gram))[-1]
    return mix @ gram @ mix.T


def apart(gram):
    """Every point gets a part of its own."""
    return gram + np.trace(gram) * np.eye(len(gram))


def first_is_odd(gram):
    """The first point is by far the longest."""
    longest = np.zeros_like(gram)
    longest[0, 0] = 1e3 * np.trace(gram)
    return gram + longest


def one_weight(gram):
    """The two weights are one: only the last point escapes."""
    n = len(gram)
    found = np.zeros((n, n))
    found[:-1, :-1] = 1.0
    found[-1, -1] = (n - 1.0) ** 2
    found[-1, :-1] = found[:-1, -1] = 1e-9
    return found


def not_below_mean(x):
    """The mean is not subtracted."""
    return np.maximum(np.asarray(x, dtype=float), 0.0)


def with_noise(x):
    """Equal entries come out different."""
    y = positive_transformation(x)
    return y + 1e-3 * np.arange(len(y))


def keeps_all(x):
    """Nothing is ever merged."""
    x = np.asarray(x, dtype=float)
    return x - x.min()


def slack(x):
    """A negative transformation that stretches."""
    return 3 * negative_transformation(x)


def uneven(x):
    """A positive transformation that tells the points of a cluster apart."""
    return positive_transformation(x) * (1 + 0.01 * np.arange(len(x)))


def apart_at_the_mean(x):
    """A positive transformation that does not send what is at the mean to 0."""
    x = np.asarray(x, dtype=float)
    return positive_transformation(x) + 0.01 * (x == x.mean())


def top_only(x):
    """Only the largest point stays above 0."""
    x = np.asarray(x, dtype=float)
    return np.where(x == x.max(), x - x.mean(), 0.0)


def bottom_only(x):
    """Only the smallest point stays above 0."""
    return top_only(-np.asarray(x))


def pairs_only(x):
    """Two points at least stay together above 0."""
    x = np.asarray(x, dtype=float)
    return np.where(x >= np.sort(x)[-2], x.max() - x.mean(), 0.0)


def favours_the_last(x):
    """A positive transformation that stretches rows in which the last point is the largest."""
    return (1.1 if x[-1] > x[0] else 1.0) * positive_transformation(x)


def rising(x):
    """A positive transformation that stretches: x_max - mean rises."""
    return 100 * positive_transformation(x)


def one_far(X, *given, **options):
    """One point starts far from the others, and no layer is a rectifier: it stays there."""
    apart = np.where(np.arange(len(X))[:, None] == 0, 50.0, 1.0) * X
    return propagate(apart, *given, **{**options, "nl": "linear"})


def odd_from(least):
    """States with an odd point from ``least`` points on."""

    def wrong(n):
        found = odd_state(max(n, 7))
        return found if n >= least else None

    return wrong


def outcomes(norm=(100.0, 1.0), default=(1.0, 0.1), he=(10.0, 1.0)):
    """Training that ends so: rank at the start and accuracy, by arm."""

    def train(x, y, depth, with_norm, with_he, *rest):
        rank, accuracy = norm if with_norm else he if with_he else default
        return rank, rank, accuracy

    return {"train_deep": train}


def bad_start(data, count, kind, epochs, seed):
    start, train, test = train_shallow(data, count, kind, epochs, seed)
    return start, train, test - 2.0 * kind.startswith("datapoint")


def big_invariant(n):
    """An invariant representation with a longer odd point."""
    found = np.array(invariant_gram(n))
    found[0, 0] = 2.0
    return found


def wider(gram):
    return replace(theorem14(gram), contraction=2.0)


PLANTED = {
    "Figure 1, IV: rescaling alone": {"propagate": other_parts(nl="relu")},
    "Figure 2": (outcomes(he=(10.0, 0.1)), outcomes(he=(90.0, 1.0))),
    "Figure 2: the default variance is too small": (
        outcomes(default=(1.0, 0.9)),
        outcomes(he=(10.0, 0.1)),  # nothing trains
    ),
    "Figure 3": ({"propagate": other_parts(nl="linear")}, {"propagate": leaning}),
    "Figure 3, the cluster is one point": {"odd_state": lambda n: Lying(odd_state(n), angle=2.0)},
    "Discussion: active for the odd point only": {"propagate": echoing},
    "(1)-(4) batch norm": {"batch_norm": lambda z: z - z.mean(axis=1, keepdims=True)},
    "Section I: rank of a product": {"relu": unchanged},
    "Definition 1, example": {"printed_gamma": lambda n: 1 / (2 * n)},
    "Lemma 2": {"relu": unchanged},
    "Lemma 2, proof (18)-(20)": (
        {"push": lambda w, x, e: np.array([-1.0, 0.2])},  # crosses x_1 and keeps x_2
        {"relu": unchanged},
    ),
    "Lemma 2, proof (19)": (
        {"push": lambda w, x, e: push(w, x / np.linalg.norm(x), e)},
        {"push": lambda w, x, e: w},
    ),
    "Theorem 3, item 1": {"sample_counts": many_neurons},
    "Theorem 3, item 2": {"sample_counts": many_neurons},
    "(26)-(27) waiting times": {"sample_counts": many_neurons},
    "(27): gamma falls with the points": {"gamma": rising_gamma},
    "(28): y_t are independent": ({"relu": same_sign}, {"relu": lambda z: relu(z - 1.5)}),
    "(28b)-(28d) Chernoff's bound": {"rank_bounds": other_bounds(sure=lambda b, a: (0.5, 0.4))},
    "ours: 2 + (n-1)/(2 gamma)": {"rank_bounds": other_bounds(sharper=0.2)},
    "Corollary 4": {"batch_norm": lambda z: z},
    "Section I: comparison with Dittmer et al.": {"relu": unchanged},
    "Section II: recentering alone": {"propagate": other_parts(nl="relu")},
    "Section III: every batch": {"propagate": other_parts(nl="linear")},
    "ours: from seven points on": ({"odd_state": odd_from(5)}, {"propagate": one_far}),
    "Section III: which projections empty the cluster": (
        {"relu": lambda z: relu(-z)},
        {"relu": lambda z: relu(z + 100)},
    ),
    "Section III: coordinates have odd points of their own": {"tree": other_tree(first_is_odd)},
    "Section III: a symmetric batch has no odd point": {"propagate": tilted},
    "ours: onset and width": {"propagate": lambda X, n, width, **o: propagate(X, n, 100, **o)},
    "Remark: the odd point is the largest": {"propagate": shuffled},
    "ours: the odd point among equals": {"propagate": longest_first},
    "Remark: Theorem 11 for d > 1": {"tree": other_tree(towards_the_largest)},
    "(8)-(10) tree model": {"weights": lambda rows: np.vstack([np.eye(rows), np.eye(rows)])},
    "Section III: a neuron depends on its parent only": {
        "weights": lambda rows: both_signs(rows) @ (np.eye(rows) + 0.1)
    },
    "Figure 4": ({"weights": np.eye}, {"positive": rising}),
    "ours: the tree is polynomial": {"tree": other_tree(stable=False, conserved=False)},
    "Lemma 7": {"positive": with_noise},
    "Theorem 10": (
        {"tree": other_tree(stable=False, conserved=False)},
        {"positive": keeps_all, "negative": keeps_all},
    ),
    "Appendix C: (29)-(33) positive transformations": (
        {"positive": keeps_all},
        {"positive_entries": lambda x: len(x) - positive_entries(x)},
        {"positive_entries": lambda x: len(np.unique(x[x > 0]))},
    ),
    "Appendix C: (31) after negative transformations": {"negative": keeps_all},
    "Appendix C: (35) the mean contracts": (
        {"negative": slack},
        {"positive_entries": lambda x: positive_entries(x) + 1},
    ),
    "Appendix C: (35d) is strict": (
        {"positive": rising},
        {"positive": lambda x: x},
        {"negative": slack},
    ),
    "Theorem 11, item 1": {"tree": other_tree(towards_the_largest)},
    "Theorem 11, item 2": {"tree": other_tree(apart)},
    "Theorem 11, item 3": {"norm_constant": lambda n: 1 / n},
    "Theorem 11, item 4": {"angle_constant": lambda n: 0.1 / n},
    "ours: sharp limits of the tree": {"tree": other_tree(towards_the_largest)},
    "Appendix D: (39)-(40) a row's contribution": {"relu": lambda z: 1.01 * relu(z)},
    "Appendix D: (41)-(45) the unbalanced rows dominate": {"tree": other_tree(**{SLOW: True})},
    "Appendix D: after (41) the set is not empty": (
        {"positive": top_only, "negative": bottom_only},
        {"positive": pairs_only, "negative": lambda x: pairs_only(-np.asarray(x))},
    ),
    "Appendix D: after (41) the points together": {"relu": unchanged},
    "Appendix D: (42) one set for all pairs": {"relu": unchanged},
    "Appendix D: (46)-(47) norms of the ends": {"tree": other_tree(apart)},
    "Appendix D: (48) the ratio": {"tree": other_tree(one_weight)},
    "Appendix D: (49)-(52) the ratio's bound": {"tree": other_tree(apart)},
    "Appendix D: (53)-(60) angles": {"tree": other_tree(apart)},
    "Appendix E: the middle cluster is one point": {"relu": lambda z: np.round(relu(z), 1)},
    "Appendix E: (61)-(62) three-cluster rows": {"positive": not_below_mean},
    "Appendix E: after (71) A, B, C and D are positive": {
        "positive": top_only,
        "negative": bottom_only,
    },
    "Appendix E: after (71) the ratio converges": {"positive": favours_the_last},
    "Appendix E: 2^T rows at layer T": {"weights": np.eye},
    "Appendix E: (63)-(65) norms by composition": {"negative": slack},
    "Appendix E: i in {3, n-2}": {"positive": uneven},
    "Appendix E: (66)-(73) norm ratios": {"positive": uneven},
    "Appendix E: (74)-(80) the second point": {"tree": other_tree(apart)},
    "Appendix E: D(T)": {"positive": uneven},
    "Appendix E: (81)-(86) cosines": {"positive": uneven},
    "Appendix E: (89)-(94) cosines of the second point": {"tree": other_tree(towards_the_largest)},
    "Appendix E: (92) its norms": {"tree": other_tree(apart)},
    "Appendix E: (87) and (88)": {"angle_constant": lambda n: math.sqrt(2) * math.pi / (n - 2)},
    "Figure 7": (
        {"positive": rising},
        {"negative": lambda x: np.maximum(-np.asarray(x), 0) + x.max()},
    ),
    "Figure 8": ({"positive": keeps_all}, {"positive": apart_at_the_mean}),
    "Definition 12": {"gram_step": lambda gram, **o: 1.1 * gram_step(gram, **o)},
    "ours: Definition 12 is unstable": {"gram_step": lambda gram, **o: 0.9 * gram_step(gram, **o)},
    "Theorem 13": (
        {"relu": lambda z: relu(z) * math.sqrt(math.pi)},
        {"gram_step": lambda gram, **o: 1.1 * gram_step(gram, **o)},
    ),
    "(95)-(98) scale of a layer": {"relu": np.abs},
    "(99)-(110) recentred points": {"alpha": lambda n: 1.01 * invariant_alpha(n)},
    "Theorem 14, hypothesis": {"invariant": big_invariant},
    "Theorem 14, item 1": {"relu": lambda z: 1.2 * relu(z)},
    "Theorem 14, item 2": {"relu": lambda z: 1.2 * relu(z)},
    "Theorem 14, item 3": {"relu": lambda z: np.maximum(z, 0.1 * z)},
    "Theorem 14, item 4": ({"theorem14": wider}, {"relu": lambda z: 2 * relu(z)}),
    "(8), (111) arc-cosine kernel": {"kernel": lambda gram: 1.1 * kernel_gram(gram)},
    "after (111): K exceeds the product": (
        {"kernel": lambda gram: 0.5 * kernel_gram(gram)},
        {"kernel": lambda gram: 1.1 * kernel_gram(gram)},
    ),
    "Figure 5, no recentering": {"propagate": other_parts(recenter=True)},
    "Figure 5, statistic of (2)": {"propagate": other_parts(statistic="rms")},
    "Figure 5, full": {"propagate": other_parts(recenter=False, statistic="rms")},
    "ours: the angle of full batch norm": {
        "symmetric_state": lambda n, **o: symmetric_state(n + 10 * (n < 50), **o)
    },
    "Figure 6": {"propagate": other_parts(recenter=True)},
    "ours: sampling in the batch's span": {"propagate": by_method(recenter=False)},
    "Discussion: an orthogonal representation": {"represent": lambda x: x},
    "Discussion: one neuron per point": {"train_shallow": bad_start},
}

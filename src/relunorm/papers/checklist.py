"""Every figure, theorem, tested equation and erratum of the five papers, read off the papers.

The list is written apart from the exhibits: one that is lost, or that gives another claim than the
list promises, is an error. Items named "ours" are statements of docs/errata.md that no paper makes.
`WITHOUT_ROW` says of every other numbered equation, and of sentences that claim something, why they
have no row.
"""

from __future__ import annotations

#: Paper -> exhibit -> the items that its claims decide.
CHECKLIST: dict[str, dict[str, tuple[str, ...]]] = {
    "rescaling": {
        "lemma1": (
            "Lemma 1, existence",
            "Lemma 1, construction",
            "Lemma 1, proof: units with v = 0",
            "Lemma 1, proof: preactivations",
            "Lemma 1, proof: equal activations",
            "Lemma 1, proof: equal contributions",
            "Lemma 1, proof: last line",
        ),
        "uniqueness": ("Lemma 1, uniqueness",),
        "several_outputs": ("ours: several outputs",),
    },
    "reduced": {
        "figure5.1-3": (
            "Figure 5.1",
            "Figure 5.2",
            "Figure 5.3",
            "Section 5.1: (5.3) against (5.2)",
            "Section 5.1: less sensitive to the start",
        ),
        "figure5.4": ("Figure 5.4", "Figure 5.4: along y = 0.2 x"),
        "figure5.5": (
            "Figure 5.5",
            "Figure 5.5: less sensitive to the start",
        ),
        "figure5.6": (
            "Figure 5.6",
            "Figure 5.6: less sensitive to the start",
        ),
        "figure5.7": ("Figure 5.7", "Figure 5.7: along y = 0.2 x"),
        "figure5.8": ("Figure 5.8", "Figure 5.8: along y = 0.2 x"),
        "density": (
            "Theorem 3.1, if",
            "Theorem 3.1, only if",
            "Theorem 3.2, (3.3)",
            "Theorem 3.2, dense",
            "Theorem 3.3, (3.4)",
            "Theorem 3.3, dense",
        ),
        "identities": (
            "(2.4) scaling",
            "(2.4) at alpha = 0",
            "(2.5) constant by steps",
            "(2.6) constant by ReLUs",
        ),
        "unit_rows": (
            "Proposition 2.1, (2.7)",
            "Proposition 2.1, proof: w = 0 and b = 0",
            "Corollary 2.2, (2.8)",
        ),
        "thresholds": (
            "Proposition 2.3, (2.10)",
            "Proposition 2.3 on D = {0}",
            "(2.11) range of a unit row",
            "(2.12) always active units",
            "ours: two extra units suffice",
            "ours: clipping needs no extra unit",
            "ours: tight thresholds",
            "(5.2), (5.3) one dimension",
        ),
        "depth": (
            "(4.3) unit rows at depth",
            "(4.4) bound on a unit's output",
            "(4.5) thresholds at depth",
            "(4.6) bound on step outputs",
            "(4.7) thresholds of step networks",
            "ours: padding",
        ),
        "derived": (
            "ours: l1 rows bound every activation",
            "ours: shallow canonical form",
        ),
    },
    "dying": {
        "figure1": (
            "Figure 1, error at small gamma",
            "Figure 1, error at large gamma",
            "Figure 1, error away from delta 0",
            "Figure 1, dead units",
            "Figure 1: only with momentum",
        ),
        "figure2": (
            "Figure 2",
            "ours: where the eigenvalues become complex",
            "Figure 2: ends at 1",
            "Figure 2: oscillation",
        ),
        "figure3": (
            "Figure 3",
            "Figure 3: gradients in the dead cone",
            "Section 5: the optimum ends between the cones",
            "Section 5: an attracting line",
            "Section 5: lower left quadrant",
        ),
        "figure4": (
            "Figure 4: the region switches sign",
            "Figure 4: the majority converges",
            "Section 5: starts in the linear cone",
            "Section 5: dead units stop on the cone's surface",
        ),
        "figure5": (
            "Figure 5",
            "Figure 5, caption",
            "Figure 5: no change up to beta 0.7",
            "Section 5: from the linear cone into the dead one",
            "Figure 5: the interior fills",
            "ours: momentum at gamma 1",
        ),
        "figure6": (
            "Figure 6, born dead",
            "Figure 6, depth",
            "Figure 6, residual depth",
            "Figure 6, faster with depth",
            "Figure 6, SGD",
        ),
        "setting": (
            "Figure 1: gamma is a variance",
            "(3)-(4) rotated target",
            "(11) equal errors",
            "(12) larger errors",
            "Section 3: same sign",
            "ours: signs in expectation",
            "(13)-(14) rotation",
        ),
        "affine": (
            "(17)-(18) affine gradients",
            "(19)-(20) momentum system",
            "Section 4: right half",
            "Section 4: step sizes up to 2",
            "Section 4: independent of gamma",
        ),
        "unit": (
            "(21)-(23) firing probability",
            "after (23): dead cone",
            "after (23): linear cone",
            "(24) loss",
            "(25)-(26) gradients",
            "(27)-(29) rotated gradients",
            "Section 5: critical points",
            "Section 5: saddle points",
            "Section 5: linear cone is affine",
            "ours: the field is homogeneous",
        ),
        "appendix_c": (
            "(30)-(32) one weight",
            "Lemma C.1",
            "Lemma C.2",
            "Lemma C.3",
            "Proposition C.1",
        ),
        "scaling": (
            "Figure 6, caption: gradients",
            "Section 6: one unit rescales",
            "Theorem D.1",
            "Theorem D.1, proof: gamma_n and alpha_n",
            "ours: layer-wise rescaling",
        ),
    },
    "pieces": {
        "background": (
            "Introduction: dense in L^p",
            "Section 2: the dual of a tight frame",
        ),
        "figures12": (
            "Figure 1",
            "Figure 2, left",
            "Figure 2, right",
        ),
        "examples": (
            "Section 3.1: M1 = 0 has the zero configuration only",
            "Example 1",
            "Example 2, regions of the first layer",
            "Example 2, zero configuration",
            "Example 2, number of regions",
            "ours: configurations need an interior",
        ),
        "partition": (
            "Proposition 3 (i)",
            "Proposition 3 (ii)",
            "Proposition 3, index of Theta",
            "footnote 1: pieces agree on their boundaries",
            "Corollary 4 (i)",
            "Corollary 4 (ii)",
            "ours: one bit apart is not adjacent",
        ),
        "atoms": (
            "(5)-(9) rectifier as a diagonal matrix",
            "(10) affine map of a configuration",
            "Theorem 5 (i)",
            "Theorem 5 (ii)",
            "Theorem 5 (iii), (11)",
            "(12) coefficients and bias",
            "after (12): range of a piece",
        ),
        "theorem6": (
            "Theorem 6 (i)",
            "Theorem 6 (i), global",
            "ours: Theorem 6 (i) is tight",
            "Theorem 6 (ii)",
            "ours: path sums",
            "ours: product of spectral norms",
            "Section 3.2: C <= 1/N",
            "Section 3.2: Frobenius norms",
        ),
        "gradients": (
            "(13) backward pass",
            "(13) derivative at 0",
            "before (14): norm of a matrix",
            "(14) largest gradient",
            "(15) smoothness",
            "after (15): a difference of inputs",
            "Section 3.2: smoothness in x",
        ),
    },
    "batchnorm": {
        "figure2": (
            "Figure 2",
            "Figure 2: the default variance is too small",
        ),
        "figure3": (
            "Figure 3",
            "Figure 3, the cluster is one point",
            "Discussion: active for the odd point only",
        ),
        "figure5": (
            "Figure 5, no recentering",
            "Figure 5, statistic of (2)",
            "Figure 5, full",
            "ours: the angle of full batch norm",
        ),
        "figure6": ("Figure 6",),
        "attractor_angle": (
            "Section III: every batch",
            "ours: from seven points on",
            "Section III: a symmetric batch has no odd point",
        ),
        "onset_width": ("ours: onset and width",),
        "parts": (
            "Figure 1, IV: rescaling alone",
            "Section II: recentering alone",
            "Section III: which projections empty the cluster",
            "Remark: the odd point is the largest",
            "ours: the odd point among equals",
            "ours: sampling in the batch's span",
        ),
        "theorem3": (
            "Definition 1, example",
            "Theorem 3, item 1",
            "ours: 2 + (n-1)/(2 gamma)",
        ),
        "rank": (
            "(1)-(4) batch norm",
            "Section I: rank of a product",
            "Lemma 2",
            "Lemma 2, proof (18)-(20)",
            "Lemma 2, proof (19)",
            "Theorem 3, item 2",
            "(26)-(27) waiting times",
            "(27): gamma falls with the points",
            "(28): y_t are independent",
            "(28b)-(28d) Chernoff's bound",
            "Corollary 4",
            "Section I: comparison with Dittmer et al.",
        ),
        "tree": (
            "(8)-(10) tree model",
            "Section III: a neuron depends on its parent only",
            "Figure 4",
            "ours: the tree is polynomial",
            "Lemma 7",
            "Theorem 10",
            "Appendix C: (29)-(33) positive transformations",
            "Appendix C: (31) after negative transformations",
            "Appendix C: (35) the mean contracts",
            "Appendix C: (35d) is strict",
            "Figure 7",
            "Figure 8",
        ),
        "theorem11": (
            "Theorem 11, item 1",
            "Theorem 11, item 2",
            "Theorem 11, item 3",
            "Theorem 11, item 4",
            "Section III: coordinates have odd points of their own",
            "Remark: Theorem 11 for d > 1",
            "ours: sharp limits of the tree",
            "Appendix D: (39)-(40) a row's contribution",
            "Appendix D: (41)-(45) the unbalanced rows dominate",
            "Appendix D: after (41) the set is not empty",
            "Appendix D: after (41) the points together",
            "Appendix D: (42) one set for all pairs",
            "Appendix D: (46)-(47) norms of the ends",
            "Appendix D: (48) the ratio",
            "Appendix D: (49)-(52) the ratio's bound",
            "Appendix D: (53)-(60) angles",
        ),
        "appendix_e": (
            "Appendix E: the middle cluster is one point",
            "Appendix E: 2^T rows at layer T",
            "Appendix E: (61)-(62) three-cluster rows",
            "Appendix E: (63)-(65) norms by composition",
            "Appendix E: i in {3, n-2}",
            "Appendix E: (66)-(73) norm ratios",
            "Appendix E: after (71) A, B, C and D are positive",
            "Appendix E: after (71) the ratio converges",
            "Appendix E: (74)-(80) the second point",
            "Appendix E: D(T)",
            "Appendix E: (81)-(86) cosines",
            "Appendix E: (89)-(94) cosines of the second point",
            "Appendix E: (92) its norms",
            "Appendix E: (87) and (88)",
        ),
        "theorem13": (
            "Definition 12",
            "Theorem 13",
            "(95)-(98) scale of a layer",
            "(99)-(110) recentred points",
        ),
        "invariance": (
            "ours: Definition 12 is unstable",
            "Theorem 14, hypothesis",
            "Theorem 14, item 1",
            "Theorem 14, item 2",
            "Theorem 14, item 3",
            "Theorem 14, item 4",
            "(8), (111) arc-cosine kernel",
            "after (111): K exceeds the product",
        ),
        "initialization": (
            "Discussion: one neuron per point",
            "Discussion: an orthogonal representation",
        ),
    },
}


def items(paper: str) -> tuple[str, ...]:
    """All items of a paper, exhibit by exhibit."""
    return tuple(item for part in CHECKLIST[paper].values() for item in part)


#: Paper -> equations and sentences without a row -> why.
WITHOUT_ROW: dict[str, dict[str, str]] = {
    "rescaling": {},
    "reduced": {
        "(1.1), (2.1)-(2.3)": "definitions: a unit, a network of one hidden layer, ReLU, the step",
        "(2.9)": "the definition of X_B",
        "(3.1)-(3.2)": "names of the families of networks whose density Theorems 3.1 to 3.3 claim",
        "(4.1)-(4.2)": "the definition of a deep network",
        "(5.1), (5.4)": "the two functions that figures 5.1 to 5.8 fit",
        "after (2.12): another number of active units": (
            "a remark on the construction of the proof; 'ours: clipping needs no extra "
            "unit' keeps the number"
        ),
        "Summary: the constraint reduces the parameters by one a unit": (
            "a count, not a measurement"
        ),
        "Introduction: a smaller space has fewer local minima": (
            "an expectation; what it is to explain has the rows of figures 5.1 to 5.8"
        ),
        "Section 5.1.2: the text compares with (2.7), figure 5.4 with (2.10)": (
            "one experiment; the row takes the figure's (2.10)"
        ),
    },
    "dying": {
        "(1)": (
            "the definition of gamma and delta; 'Figure 1: gamma is a variance' tests what gamma is"
        ),
        "(2), (5)-(10)": (
            "definitions: targets, updates, models, loss; (6)-(7) are run update by update "
            "in the row of (19)-(20)"
        ),
        "(15)": "the definition of a dying unit",
        "(16)": "(10) for the affine model; its gradients are the row of (17)-(18)",
        "(33)": "the network of figure 1",
        "(34)": "a step to (28), whose result is tested",
        "(35)-(37)": "the definition of the network of Theorem D.1",
        "(38)-(44)": (
            "Theorem D.1 and the steps of its proof, tested by its conclusion, by the row of "
            "gamma_n and alpha_n, and by 'ours: layer-wise rescaling', which is (40)-(44) with one "
            "factor"
        ),
        "Conclusion: large regions lead to dying as gamma falls with momentum": (
            "the row of figure 5"
        ),
        "Section 5: the optimum is the same for both models": "the row of the critical points",
        "Section 4: affine model and unit agree where the input is positive": (
            "the definition of ReLU; the row of the linear cone has the gradients"
        ),
        "Section 4: eta cannot make up for gamma": "the row 'Section 4: independent of gamma'",
        "Section 6: gamma may be unknown in advance": "no statement with a number",
        "Section 1: once dead, gradients are zero": (
            "the definition of dead; that only other inputs revive a unit leaves out momentum, "
            "which goes on moving it"
        ),
        "Section 2: what other papers found": "statements of those papers",
        "Section 5: phi(4) is about 1e-4": "1.34e-4, a value of a known function",
        "Section 5: other regions die as before or by way of the linear cone": (
            "a hypothesis; its half about the linear cone has a row, figure 5 shows the rest"
        ),
        "Section 5: a unit in the linear cone oscillates for beta > 0.7": (
            "the rows of figure 2 and 'linear cone is affine'"
        ),
        "Section 6: not born dead due to the batch normalization layer": (
            "a cause; over the rows it normalizes, batch norm alone suffices, as no unit is off on "
            "all of them. Whether the shortcut would do without it, figure 6 does not show: it has "
            "no residual network without batch norm"
        ),
        "Section 6: gamma f(x) = f(gamma x)": "ReLU is positively homogeneous",
        "Section 5: the linear cone evolves towards the dead one": (
            "the row 'starts in the linear cone': they leave it for the optimum, which lies below"
        ),
    },
    "pieces": {
        "(1)-(2)": (
            "background: the definition of a frame, whose dual has a row, and sparse representation"
        ),
        "(3)-(4)": "definitions: the three-layer representation and the rectifier",
        "after Theorem 6: the global bound is far from optimal": (
            "the ratios in the rows of Theorem 6 say so"
        ),
        "after Theorem 6: a refinement of a bound of [21]": (
            "a comparison with another paper's bound, which this one does not print"
        ),
        "after Theorem 6: mean and variance of the weights must be small": (
            "C <= 1/N, which has a row, bounds them by 1/N and 1/N^2"
        ),
        "Section 3.1: configurations of k layers are prolonged by the next": (
            "the refinement of Proposition 3 (ii)"
        ),
        "Section 3.2: wider layers have more atoms, deeper ones more paths": (
            "counts that Theorem 5 states; its rows list the atoms and the paths"
        ),
        "Section 3.1: not all 2^N vectors are part of a configuration": (
            "the row of Example 2: at most 7 of 8"
        ),
        "before Theorem 6: it can be modified without normalization": (
            "docs/errata.md has the factor; a row would be ours"
        ),
        "after (14): (NC)^(L-k) grows with L - k if NC > 1": "a power of a number above 1",
    },
    "batchnorm": {
        "(5)-(6)": (
            "the definitions of gamma and of the event of Lemma 2, whose probability its row tests"
        ),
        "(7)": "the rows of Theorem 3, item 2, and of (28b)-(28d)",
        "(11)-(12)": "the definition of an angle, and the statement of Theorem 11, item 4",
        "(13)-(17)": "steps of the proof of Lemma 2 that its conclusion and (18)-(20) test",
        "(21)-(25)": "the definition of the waiting times of (26)-(27)",
        "(34)": "the definition of the sequence of (35)",
        "(36)-(38)": "the row of figure 7",
        "(112)-(117)": "the proof of Theorem 14, item 4, from (111); its conclusion is tested",
        "Figure 1": "a diagram of the sections; its part IV has a row",
        "Section III: the intuition in three steps": (
            "an explanation; its summary has the row 'which projections empty the cluster'"
        ),
        "Section III: the mean over the sphere in place of all projections": (
            "ReLU is homogeneous: a constant factor"
        ),
        "Section III: the odd point of a sorted batch is the first or the last": (
            "Theorem 11, item 3: the others are shorter than one of these"
        ),
        "after Theorem 11: a ratio of Theta(n)": "the row of the sharp limits",
        "after Theorem 11: the model is similar to random networks": (
            "the row of figure 3, which holds random networks to the constants of Theorem 11"
        ),
        "Section III: the vectors in S_(2^(t+1))": (
            "S_(2^t), which has 2^(t+1) elements: the row of figure 4 counts them"
        ),
        "Appendix D: Appendix A has the three-cluster rows": "a wrong letter: Appendix E has",
        "Introduction: untypical histograms lower the angle": (
            "a possible explanation of figures 5 and 6, which have rows"
        ),
    },
}

"""Linear bounds on the difference over a box, in terms of the units that are open there.

A unit that keeps its sign in both networks over a box is linear in what it reads. With all of those
put in (`rows`), every pre-activation z and every difference e (see `relunorm.bounds.pairs.pair`) is
affine in the inputs, the values p = relu(z) and the differences q = relu(z + e) - relu(z) of the
open units below it:

    z = A (1, x, p),        e = B (1, x, p) + C q .

The same goes for y = z + e in terms of relu(y). Small boxes have few open units, so these rows are
short, and backward bounds (`ends`; the lines are those of `relunorm.bounds.pairs.linear`) run over
them instead of over whole layers. A closed unit stays closed in every part of a box; what a part
has to know of the box around it is which units those are (`units`).

What relu is above a line is a convex function of z: with z bounded by a convex function of the
inputs from above and by a concave one from below, relu(z) is at most

    s z + max((1 - s) relu(upper), s relu(-lower)),        0 <= s <= 1,

whose rest is convex in the inputs, too. What is above z, y or e of a unit, backward, is an affine
function and a sum of such rests, so it is convex and largest at a corner of the box. Values at
corners are therefore all that is kept of these functions (`relu_rest`): they give the bound, and
the rests of the units above. The same goes for q and its lines. Up to five inputs make corners;
over the others affine parts are bounded at once.

What is lost in a line below relu is lost in its slope. So slopes are chosen for every bound of z:
1 where z > 0 and 0 elsewhere, at an average of those corners where the row will be nearly largest,
judged from the middles between what is known of z at corners (`foresee`).

Sound in real arithmetic: sizes are summed beside every value, and results are widened by what their
roundings can amount to (`relunorm.arithmetic.floats`): at every corner by what that is anywhere in
the box, so that what is kept are values of a convex function.
"""

"""Linear bounds on the difference over a box, in terms of the units that are open there.

A unit that keeps its sign in both networks over a box is linear in what it reads. With all of those
put in (`rows`), every pre-activation z and every difference e (see `relunorm.bounds.pairs.pair`) is
affine in the inputs, the values p = relu(z) and the differences q = relu(z + e) - relu(z) of the
open units below it. With all of them counted from what they are at the middle of the box (`middle`)
no constant is left, t being the inputs:

    z = A (t, p),        e = B (t, p) + C q .

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

Of q there are lines above and below that suit it best, with slopes of their own. Where copies are
not very close, both have one slope instead (`joined_lines`): a row of e and minus it then have the
same coefficients and go down as one, which takes a fifth less time a box.

Rows are in float32, sixteen numbers at a time, for which they have to be counted from the middle.
Where numbers are too large or too small for it (`memory.flatten`) the same code works in float64.
Lines are those of the slopes as they are kept, rounded.

Sound in real arithmetic: beside every row stands what it can be off by anywhere in the box, as a
number that is added to its bounds. An open unit has two such numbers. One is what its own row is
off by, when that is put into others. The other (`Form.bulk`) is what a coefficient 1 of its p or q
adds on its way down: that row; n roundings of the sizes of what is summed up, the coefficients as
they are in the rows times how far their variables are from 0 in the box; and its lines, what is
above them at corners, and the middle, which are all rounded. So a coefficient that is not there,
because others took it away, costs nothing. n is at most the numbers that one sum has, and one more
for every product that is added to it, since products are summed by themselves
(`relunorm.compiled.products`); sizes are rounded sums themselves, which a margin covers. Whatever
underflow can lose is in `Memory.loss`, and what overflows ends as inf or NaN, which is made inf.
Middles are in float64, with errors of their own. What is added is the same at every corner, so that
what is kept are values of a convex function. Sums have one order on every processor that rounds a
product together with a sum, so that proofs come out the same.
"""

"""One module a section, each with ``compute(case, seconds)``: it calls a room and says of every
number whether it is exact, a bound or an estimate."""

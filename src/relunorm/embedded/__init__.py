"""Networks on microcontrollers: integers in C, with proofs of their ranges and of their error."""

from relunorm.embedded.arithmetic.integers import IntegerNetwork
from relunorm.embedded.certificate import ProgramCertificate, verify
from relunorm.embedded.export import Export, to_c

__all__ = ["Export", "IntegerNetwork", "ProgramCertificate", "to_c", "verify"]

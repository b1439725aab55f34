"""Networks on microcontrollers: integers in C, with proofs of their ranges and of their error."""

from relunorm.embedded.arithmetic.integers import IntegerNetwork
from relunorm.embedded.export import Export, to_c
from relunorm.embedded.program_certificate import ProgramCertificate, verify

__all__ = ["Export", "IntegerNetwork", "ProgramCertificate", "to_c", "verify"]

"""``python -m relunorm``."""

from relunorm.cli import main

main()

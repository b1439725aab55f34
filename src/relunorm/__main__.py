"""``python -m relunorm``, and what the command ``relunorm`` starts."""

import sys


def main() -> None:
    """The command line; Ctrl-C while it is still being imported ends it without a traceback."""
    try:
        from relunorm.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("relunorm: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

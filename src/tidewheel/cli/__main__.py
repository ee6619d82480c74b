"""`python -m tidewheel.cli` is the command `tidewheel`."""

from tidewheel.cli import main

if __name__ == "__main__":
    main()

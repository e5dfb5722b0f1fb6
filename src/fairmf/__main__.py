"""Run the command line with `python -m fairmf`."""

from fairmf.cli import main

if __name__ == "__main__":
    main()

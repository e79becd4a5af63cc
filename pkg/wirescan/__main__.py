"""`python -m wirescan`: the command line."""
from wirescan.cli import main

main(prog_name="wirescan")

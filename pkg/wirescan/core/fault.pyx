"""The enumeration `Fault`. It is declared in fault.pxd, so that C and Python share one list."""

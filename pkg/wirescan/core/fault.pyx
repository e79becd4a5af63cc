"""The enumeration `Fault`, made from fault.pxd so that C and Python share one list."""

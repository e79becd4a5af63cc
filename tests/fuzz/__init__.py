"""Long runs over random hostile bytes."""

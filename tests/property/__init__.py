"""Laws of the pure core, tested with Hypothesis on random logs."""

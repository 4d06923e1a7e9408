"""Step Journal: every step of an agent an immutable event, every crash a resumption."""

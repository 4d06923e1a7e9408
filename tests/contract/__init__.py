"""What every log must do, run against each of them. Nothing here is skipped for a backend."""

"""What is in a log and should not be, drawn at random: through the decoder to the tables' rows."""

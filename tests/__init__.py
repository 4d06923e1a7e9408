"""The tests. A package only so that they can import `tests.broker`."""

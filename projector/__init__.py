"""The projector: folds the log of a journal into tables that anybody can query."""

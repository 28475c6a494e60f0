"""File formats: how files are laid out, one format per module, without DALI and without datasets."""

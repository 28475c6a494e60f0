"""File formats: how files are laid out, one format a module, without DALI and without datasets."""

"""File formats, one per module, without DALI and without datasets."""

"""Kinds by their words, for short comparisons."""


def words(kinds):
    """The word of each field's kind."""
    return {name: kind.word for name, kind in kinds.items()}

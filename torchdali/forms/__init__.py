"""The forms: what each move does to each kind of field."""

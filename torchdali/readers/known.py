"""The base of readers that torchdali knows: File, COCO, TFRecord and the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..kinds import AnyKind
from ..readers import native
from .base import Reader, Shuffle


class KnownReader(Reader):
    """Base of the readers whose outputs, kinds and traps torchdali knows.

    Args:
        fields: other names for its outputs, in their order; index (the position in the epoch) and valid may be among
            them.  None: the default names.
        kinds: the kinds of fields that differ from the defaults, such as `{"image": "array"}` for bytes as they are.
        shuffle, seed, virtual_shards, options: as in `Reader`.
    """

    ndd_name: ClassVar[str]  # in dynamic mode, "File" or "experimental.Video"

    @property
    def name(self) -> str:
        """The reader's name, for messages."""
        return self.ndd_name

    def __init__(
        self,
        *,
        fields: Sequence[str] | None = None,
        kinds: Mapping[str, AnyKind] | None = None,
        shuffle: Shuffle = False,
        seed: int | None = None,
        virtual_shards: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            native.native_reader(self.ndd_name),
            fields,
            kinds=kinds,
            shuffle=shuffle,
            seed=seed,
            virtual_shards=virtual_shards,
            **options,
        )

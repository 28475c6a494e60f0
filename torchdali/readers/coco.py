"""Images with boxes and masks, in COCO's format."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..formats.coco import Annotations, check_preprocessed
from ..kinds import Array, Boxes, Image
from .base import Output
from .checks import check_files, warn_dropped
from .known import KnownReader

RENAMED = {
    "masks": "polygon_masks",
    "save_img_ids": "image_ids",
    "meta_files_path": "preprocessed_annotations",
    "dump_meta_files": "save_preprocessed_annotations",
    "dump_meta_files_path": "save_preprocessed_annotations_dir",
}


class COCO(KnownReader):
    """DALI's reader of COCO's format: `file_root`, a folder of images, and `annotations_file`, a JSON file.

    Samples come in the order of the image ids.  Fields: image (a file as it is), boxes (float32 [m, 4]; x, y, width,
    height, or left, top, right, bottom with `ltrb`; between 0 and 1 with `ratio`), labels (int32 [m]; categories count
    from 1 in the file's order, `avoid_class_remapping` keeps their ids); then

    - with `polygon_masks`: polygons (int32 [p, 3]; the box, the first vertex and the one after the last) and
      vertices (float32 [v, 2]; x, y);
    - with `pixelwise_masks`: masks (int32 [H, W, 1]; labels, 0 for the background);
    - with `image_ids`: image_ids (int32).

    An image without boxes has boxes [0, 4] (`skip_empty` leaves it out).  `images` selects by file name.  Each epoch
    begins with DALI's parsing of the JSON file; with `preprocessed_annotations` that takes no time.

    Checked when it is made: the JSON file is whole, has numbers in the form that DALI parses (it stops reading silently
    at any other), known categories and unique ids; images exist and are not empty; masks, if they are asked for, are
    polygons, or run lengths that fill the image.

    Counted in a warning: annotations that DALI drops, since their image is not listed, their box is smaller than
    `size_threshold` (0.1 pixels), or their mask is not of the kind that is asked for; and boxes that lie outside of
    their images.  The sizes in the JSON file are not compared with those of the images.
    """

    ndd_name = "COCO"
    full_shuffle = True

    def describe(self, fields: Sequence[str]) -> list[Output]:
        options = self.options
        for name, instead in RENAMED.items():
            if name in options:
                raise ValueError(f"COCO takes no {name}: write {instead}=")
        boxes = Boxes("xyxy" if options.get("ltrb") else "xywh", normalized=bool(options.get("ratio")), group="objects")
        outputs = [
            Output("image", Image(encoded=True)),
            Output("boxes", boxes),
            Output("labels", Array(group="objects")),
        ]
        if options.get("polygon_masks"):
            outputs += [Output("polygons", "array"), Output("vertices", "array")]
        if options.get("pixelwise_masks"):
            outputs.append(Output("masks", "array"))
        if options.get("image_ids"):
            outputs.append(Output("image_ids", "number"))
        return outputs

    def check(self) -> None:
        options = self.options
        if options.get("polygon_masks") and options.get("pixelwise_masks"):
            raise ValueError("COCO takes either polygon_masks or pixelwise_masks, got both")
        root = options.get("file_root")
        if not root:
            raise ValueError("COCO needs file_root=, the folder of the images")
        if options.get("preprocessed_annotations"):
            names, found = check_preprocessed(options)
            self.contents = {"preprocessed_annotations": found, "file_root": None}
            dropped = []
        elif options.get("annotations_file"):
            annotations = Annotations(options["annotations_file"], options)
            self.contents = {"annotations_file": annotations.digest, "file_root": None}
            names, dropped = annotations.files, annotations.dropped
        else:
            raise ValueError("COCO needs annotations_file= or preprocessed_annotations=")
        check_files(self.name, (os.path.join(root, name) for name in names))
        if dropped:
            warn_dropped(self.name, f"{options['annotations_file']}: {'; '.join(dropped)}")

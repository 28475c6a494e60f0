"""Small folders on disk in the layouts of torchvision's datasets, opened by torchvision."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import torch
from scipy.io import savemat
from torchvision import datasets

PHOTOS = sorted((Path(__file__).parent / "data" / "photos").glob("*.jpg"))


def put(path, i=0):
    """The i-th photo as this file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(PHOTOS[i % len(PHOTOS)], path)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def class_folders(root, classes=("a", "b"), name="{}.jpg"):
    for i, each in enumerate(classes):
        for k in range(2):
            put(root / each / name.format(k + 1), i + k)


def image_folder(root, **arguments):
    class_folders(root)
    return datasets.ImageFolder(root, **arguments)


def caltech101(root, **arguments):
    for c, category in enumerate(("ant", "bee", "BACKGROUND_Google")):
        for i in (1, 2):
            put(root / "caltech101" / "101_ObjectCategories" / category / f"image_{i:04d}.jpg", c + i)
    return datasets.Caltech101(root, **arguments)


def caltech256(root, **arguments):
    for c, category in enumerate(("001.ak47", "002.flag")):
        for i in (1, 2):
            put(root / "caltech256" / "256_ObjectCategories" / category / f"{c + 1:03d}_{i:04d}.jpg", c + i)
    return datasets.Caltech256(root, **arguments)


def celeba(root, **arguments):
    base = root / "celeba"
    names = [f"{i:06d}.jpg" for i in (1, 2, 3)]
    for i, name in enumerate(names):
        put(base / "img_align_celeba" / name, i)

    def table(file, rows, header=""):
        write(base / file, header + "".join(f"{n} {row}\n" for n, row in zip(names, rows, strict=True)))

    table("list_eval_partition.txt", ["0", "1", "0"])
    table("identity_CelebA.txt", ["7", "8", "9"])
    table("list_bbox_celeba.txt", ["1 2 30 40"] * 3, "3\nname x y w h\n")
    table("list_landmarks_align_celeba.txt", ["1 2", "3 4", "5 6"], "3\nx y\n")
    table("list_attr_celeba.txt", ["1 -1", "-1 -1", "1 1"], "3\nHat Young\n")
    return datasets.CelebA(root, **arguments)


def clevr(root, split="train", **arguments):
    base = root / "clevr" / "CLEVR_v1.0"
    names = ["x_1.png", "x_2.png"]
    for i, name in enumerate(names):
        put(base / "images" / split / name, i)
    scenes = [{"image_filename": name, "objects": [0] * (i + 3)} for i, name in enumerate(names)]
    write(base / "scenes" / f"CLEVR_{split}_scenes.json", json.dumps({"scenes": scenes}))
    return datasets.CLEVRClassification(root, split, **arguments)


def country211(root, **arguments):
    class_folders(root / "country211" / "train")
    return datasets.Country211(root, **arguments)


def dtd(root, **arguments):
    class_folders(root / "dtd" / "dtd" / "images")
    write(root / "dtd" / "dtd" / "labels" / "train1.txt", "b/1.jpg\na/2.jpg\n")
    return datasets.DTD(root, **arguments)


def eurosat(root, **arguments):
    class_folders(root / "eurosat" / "2750")
    return datasets.EuroSAT(root, **arguments)


def fgvc_aircraft(root, **arguments):
    data = root / "fgvc-aircraft-2013b" / "data"
    for i in (1, 2):
        put(data / "images" / f"{i}.jpg", i)
    write(data / "variants.txt", "707\nA320\n")
    write(data / "images_variant_trainval.txt", "2 A320\n1 707\n")
    return datasets.FGVCAircraft(root, **arguments)


def flickr8k(root, **arguments):
    put(root / "1_x.jpg")
    write(root / "ann.html", "<table><a>http://f/1/</a><ul><li>A dog.</li><li>Dog!</li></ul></table>")
    return datasets.Flickr8k(root, str(root / "ann.html"), **arguments)


def flickr30k(root, **arguments):
    put(root / "1.jpg")
    put(root / "2.jpg", 1)
    write(root / "ann.txt", "2.jpg#0\tA cat.\n1.jpg#0\tA dog.\n1.jpg#1\tDog!\n")
    return datasets.Flickr30k(root, str(root / "ann.txt"), **arguments)


def flowers102(root, **arguments):
    base = root / "flowers-102"
    for i in (1, 2, 3):
        put(base / "jpg" / f"image_{i:05d}.jpg", i)
    savemat(base / "setid.mat", {"trnid": [3, 1], "valid": [2, 2], "tstid": [2, 2]})
    savemat(base / "imagelabels.mat", {"labels": [5, 6, 7]})
    return datasets.Flowers102(root, **arguments)


def food101(root, **arguments):
    base = root / "food-101"
    class_folders(base / "images", ("pie", "soup"))
    write(base / "meta" / "train.json", json.dumps({"soup": ["soup/2"], "pie": ["pie/1", "pie/2"]}))
    return datasets.Food101(root, **arguments)


def gtsrb(root, **arguments):
    from PIL import Image

    for i in range(2):
        path = root / "gtsrb" / "GTSRB" / "Training" / f"{i:05d}" / "1.ppm"
        path.parent.mkdir(parents=True)
        Image.open(PHOTOS[i]).convert("RGB").save(path)
    return datasets.GTSRB(root, **arguments)


def imagenet(root, **arguments):
    class_folders(root / "train", ("n01", "n02"), "{}.JPEG")
    torch.save(({"n01": ("tench",), "n02": ("goldfish", "carp")}, []), root / "meta.bin")
    return datasets.ImageNet(root, **arguments)


def imagenette(root, **arguments):
    class_folders(root / "imagenette2" / "train", ("n01440764", "n02102040"), "{}.jpeg")
    return datasets.Imagenette(root, **arguments)


def inaturalist(root, **arguments):
    for i, name in enumerate(("00000_A_b_c_d_e_f_g", "00001_A_x_c_d_e_f_h")):
        put(root / "2021_train" / name / "1.jpg", i)
    return datasets.INaturalist(root, **arguments)


def lfw_people(root, **arguments):
    base = root / "lfw-py"
    for i in (1, 2):
        put(base / "lfw_funneled" / "Ann" / f"Ann_{i:04d}.jpg", i)
    put(base / "lfw_funneled" / "Bob" / "Bob_0001.jpg")
    write(base / "lfw-names.txt", "Aaron\t1\nAnn\t2\nBob\t1\n")
    write(base / "peopleDevTrain.txt", "2\nBob\t1\nAnn\t2\n")
    return datasets.LFWPeople(root, split="train", **arguments)


def oxford_iiit_pet(root, **arguments):
    base = root / "oxford-iiit-pet"
    for i, name in enumerate(("Pug_1", "Ragdoll_7")):
        put(base / "images" / f"{name}.jpg", i)
    write(base / "annotations" / "trainval.txt", "Pug_1 2 2 1\nRagdoll_7 1 1 1\n")
    return datasets.OxfordIIITPet(root, **arguments)


def places365(root, **arguments):
    put(root / "val_256" / "1.jpg")
    put(root / "val_256" / "2.jpg", 1)
    write(root / "categories_places365.txt", "/a/abbey 0\n/b/barn 1\n")
    write(root / "places365_val.txt", "2.jpg 1\n1.jpg 0\n")
    return datasets.Places365(root, split="val", small=True, **arguments)


def rendered_sst2(root, **arguments):
    class_folders(root / "rendered-sst2" / "train", ("negative", "positive"), "{}.png")
    return datasets.RenderedSST2(root, **arguments)


def sbu(root, **arguments):
    put(root / "dataset" / "1_2.jpg")
    write(root / "dataset" / "SBU_captioned_photo_dataset_urls.txt", "http://x/1/1_2.jpg\nhttp://x/1/3_4.jpg\n")
    write(root / "dataset" / "SBU_captioned_photo_dataset_captions.txt", "One.\nTwo.\n")
    return datasets.SBU(root, download=False, **arguments)


def stanford_cars(root, **arguments):
    base = root / "stanford_cars"
    put(base / "cars_train" / "1.jpg")
    put(base / "cars_train" / "2.jpg", 1)
    os.makedirs(base / "devkit")
    savemat(
        base / "devkit" / "cars_train_annos.mat",
        {"annotations": [{"fname": "2.jpg", "class": 2}, {"fname": "1.jpg", "class": 1}]},
    )
    savemat(base / "devkit" / "cars_meta.mat", {"class_names": ["Audi", "BMW"]})
    return datasets.StanfordCars(root, **arguments)


def sun397(root, **arguments):
    base = root / "SUN397"
    put(base / "a" / "abbey" / "sun_1.jpg")
    put(base / "b" / "bar" / "inside" / "sun_2.jpg", 1)
    write(base / "ClassName.txt", "/a/abbey\n/b/bar/inside\n")
    return datasets.SUN397(root, **arguments)


DATASETS = (
    image_folder,
    caltech101,
    caltech256,
    celeba,
    clevr,
    country211,
    dtd,
    eurosat,
    fgvc_aircraft,
    flickr30k,
    flickr8k,
    flowers102,
    food101,
    gtsrb,
    imagenet,
    imagenette,
    inaturalist,
    lfw_people,
    oxford_iiit_pet,
    places365,
    rendered_sst2,
    sbu,
    stanford_cars,
    sun397,
)

"""The classes and files of data sets as published; without torch, for the list of data sets."""

from dataclasses import dataclass

FASHION_CLASSES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
IDX_KINDS = ("images-idx3", "labels-idx1")
MNIST_FILES = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in IDX_KINDS)
N_VALUES = 3 * 32 * 32
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_CLASSES = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """.split()  # noqa: SIM905  (a list of a hundred quoted names is harder to read)
)
CAMELYON17_CLASSES = ("normal", "tumor")
FMOW_CLASSES = tuple(
    """
    airport airport_hangar airport_terminal amusement_park aquaculture archaeological_site barn border_checkpoint
    burial_site car_dealership construction_site crop_field dam debris_or_rubble educational_institution
    electric_substation factory_or_powerplant fire_station flooded_road fountain gas_station golf_course
    ground_transportation_station helipad hospital impoverished_settlement interchange lake_or_pond lighthouse
    military_facility multi-unit_residential nuclear_powerplant office_building oil_or_gas_facility park
    parking_lot_or_garage place_of_worship police_station port prison race_track railway_bridge
    recreational_facility road_bridge runway shipyard shopping_mall single-unit_residential smokestack solar_farm
    space_facility stadium storage_tank surface_mine swimming_pool toll_booth tower tunnel_opening waste_disposal
    water_treatment_facility wind_farm zoo
    """.split()  # noqa: SIM905  (a list of sixty quoted names is harder to read)
)
TINY_FOLDER, TINY_CORRUPTED_FOLDER = "tiny-imagenet-200", "Tiny-ImageNet-C"
TINY_SIZE = 64


@dataclass(frozen=True)
class CifarLayout:
    """The files of an archive by part, and the number of label bytes of a row, of which the last is the label."""

    archive: str
    folder: str
    files: dict[str, tuple[str, ...]]
    n_label_bytes: int
    pickled: str  # the folder of the version that is not read

    def sizes(self, n_train: int, n_test: int) -> dict[str, int | None]:
        """The bytes of each file."""
        width = self.n_label_bytes + N_VALUES
        rows = {"train": n_train, "test": n_test}
        return {file: rows[part] // len(files) * width for part, files in self.files.items() for file in files}


LAYOUTS = {
    "cifar10": CifarLayout(
        "cifar-10-binary.tar.gz",
        "cifar-10-batches-bin",
        {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)},
        n_label_bytes=1,
        pickled="cifar-10-batches-py",
    ),
    "cifar100": CifarLayout(
        "cifar-100-binary.tar.gz",
        "cifar-100-binary",
        {"train": ("train.bin",), "test": ("test.bin",)},
        n_label_bytes=2,
        pickled="cifar-100-python",
    ),
}

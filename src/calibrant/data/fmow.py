"""Functional Map of the World in WILDS (Koh et al., ICML 2021): land use from above, by year and region."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calibrant.data.csv_columns import CsvColumns, mask, read_csv_columns
from calibrant.data.wilds import joined

CLASSES = tuple(
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
VAL_YEAR, TEST_YEAR = 2013, 2016  # the first years of the two splits out of distribution
SEQUESTERED = "seq"  # images of the challenge that WILDS holds back; their rows number the files all the same
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|\+00:00)?$"
OTHER_REGION = "Other"


def read_fmow(folder: Path, class_names: Sequence[str]) -> pa.Table:
    """Every image, with its region, year and country_code; those whose year contradicts their split are in none."""
    file = read_csv_columns(folder / "rgb_metadata.csv", ("split", "category", "country_code", "timestamp"))
    written = np.array(file.text("split").to_pylist())
    file.require("split", np.isin(written, ("train", "val", "test", SEQUESTERED)), "train, val, test or seq")
    open_to_all = written != SEQUESTERED
    labels = np.asarray(pc.index_in(file.text("category"), pa.array(class_names)).fill_null(-1), dtype=np.int64)
    file.require("category", (labels >= 0) | ~open_to_all, f"one of the {len(class_names)} classes")
    years, country = _years(file, open_to_all), file.text("country_code")
    columns = {"region": _regions(folder, country), "year": years, "country_code": country}
    numbers = pa.array(np.arange(len(file))).cast(pa.string())
    names = joined("images/rgb_img_", numbers, ".png")
    return pa.table({"path": names, "label": labels, "split": _splits(written, years), **columns})


def _years(file: CsvColumns, needed: np.ndarray) -> np.ndarray:
    """The year of each time, which is written in whole seconds or in fractions; 0 where none is needed."""
    times = file.text("timestamp")
    readable = pc.match_substring_regex(times, TIME)
    file.require("timestamp", mask(readable) | ~needed, "a time as 2016-02-04T19:29:21Z")
    first_four = pc.if_else(readable, pc.utf8_slice_codeunits(times, 0, 4), "0")
    return np.asarray(first_four.cast(pa.int64()))


def _splits(written: np.ndarray, years: np.ndarray) -> np.ndarray:
    past, middle, recent = years < VAL_YEAR, (years >= VAL_YEAR) & (years < TEST_YEAR), years >= TEST_YEAR
    rules = {
        "train": past & (written == "train"),
        "id_val": past & (written == "val"),
        "id_test": past & (written == "test"),
        "val": middle & (written == "val"),
        "test": recent & (written == "test"),
    }
    return np.select(list(rules.values()), list(rules), "")


def _regions(folder: Path, country: pa.StringArray) -> pa.StringArray:
    file = read_csv_columns(folder / "country_code_mapping.csv", ("alpha-3", "region"))
    regions = file.text("region")
    named = pc.if_else(pc.equal(regions, ""), OTHER_REGION, regions)  # Antarctica has none
    return named.take(pc.index_in(country, file.text("alpha-3"))).fill_null(OTHER_REGION)

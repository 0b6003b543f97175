"""Write experiments/schema.json, the JSON schema of experiment files that `calibrant schema` prints."""

import json

from calibrant.experiments.config import Experiment
from calibrant.experiments.files import packaged

packaged("schema.json").write_text(json.dumps(Experiment.model_json_schema(), indent=2) + "\n", encoding="utf-8")

"""The recipes of docs/trackers.md, run with the real packages where they are installed."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import calibrant as cb
from calibrant import Predictions
from calibrant.errors import InvalidInputError

PAGE = Path(__file__).parents[2] / "docs" / "trackers.md"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def predictions() -> Predictions:
    draw = torch.Generator().manual_seed(0)
    return Predictions.from_logits(2 * torch.randn(300, 3, generator=draw), torch.randint(3, (300,), generator=draw))


def run_recipe(section: str, **names: Any) -> None:
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2]
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    exec(compile(code[1], PAGE.name, "exec"), {"__name__": "__documentation__", **names})


def test_the_dict(predictions: Predictions) -> None:
    card = cb.score(predictions)
    found = card.to_dict("test/")
    assert found == {f"test/{name}": value for name, value in card.values().items()}
    assert all(type(value) is float and re.fullmatch(r"[a-z0-9_/]+", name) for name, value in found.items())
    perfect = cb.score(Predictions.from_probs([[0.75, 0.25]], [0]))
    assert perfect["accuracy"] == 1
    assert perfect.values().keys() - perfect.to_dict().keys() == {"nll_on_errors", "brier_on_errors"}
    with pytest.raises(InvalidInputError, match="prefix must be"):
        card.to_dict(3)  # type: ignore[arg-type]


def test_mlflow(predictions: Predictions) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    mlflow.set_tracking_uri(f"sqlite:///{Path.cwd()}/runs.db")
    run_recipe("MLflow", predictions=predictions)
    run = mlflow.last_active_run()
    assert run.data.metrics == pytest.approx(cb.score(predictions).to_dict("test/"))
    page = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="audit.html")
    assert "<!DOCTYPE html>" in Path(page).read_text(encoding="utf-8")


def test_wandb(predictions: Predictions, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    logged: dict[str, Any] = {}
    log = wandb.sdk.wandb_run.Run.log

    def keep(run: Any, data: dict[str, Any], *args: Any, **options: Any) -> None:
        logged.update(data)
        log(run, data, *args, **options)

    monkeypatch.setattr(wandb.sdk.wandb_run.Run, "log", keep)
    run_recipe("Weights & Biases", predictions=predictions)
    wanted = cb.score(predictions).to_dict("test/")
    assert {name: logged[name] for name in wanted} == wanted
    assert "audit" in logged
    assert list(Path("wandb").glob("offline-run-*/files/media/html/audit_*.html"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard
def test_tensorboard(predictions: Predictions) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_recipe("TensorBoard", predictions=predictions)
    events = EventAccumulator("log").Reload()
    found = {name: events.Scalars(name)[0].value for name in events.Tags()["scalars"]}
    assert found == pytest.approx(cb.score(predictions).to_dict("test/"), rel=1e-6)
    assert Path("log/audit.html").is_file()

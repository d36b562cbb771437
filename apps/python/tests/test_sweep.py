"""Sweeps: the same bytes on every engine, folders, interrupts, lost workers."""

import os
import signal
import time

import pandas
import pytest
import rockery

SWEEP = """
title = "A sweep"
topology = { kind = "star", hosts = 5 }
[[workload]]
pattern = "each"
from = ["h[1-4]"]
to = ["h0"]
message = "64KiB"
messages = 20
[sweep]
"nic.default.mtu" = [1024, 4096]
seed = [1, 2, 3]
"""

# Threads and Dask; `make nightly` adds Ray, which takes a quarter of a gigabyte.
ENGINES = os.environ.get("ROCKERY_TEST_ENGINES", "threads dask").split()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_give_what_the_command_gives(file, command, tmp_path, engine):
    steps = []
    result = rockery.sweep(file, engine=engine, workers=2, folder=tmp_path / "out",
                           progress=lambda done, all: steps.append((done, all)))
    assert steps == [(number, 6) for number in range(1, 7)]
    assert result.json() == command(file, "--json")
    for number in range(6):
        expected = command(file, "--point", number, "--json")
        assert (tmp_path / "out" / f"{number}.json").read_text() == expected
    frame = result.flows.to_pandas()
    columns = ["run", "nic.default.mtu", "seed", "nic.default.mtu_number"]
    assert len(frame) == 24 and list(frame.columns[:4]) == columns
    assert (frame["nic.default.mtu"].astype(float) == frame["nic.default.mtu_number"]).all()


def test_swept_quantities_are_numbers_with_their_unit():
    result = rockery.sweep({
        "topology": {"kind": "star", "hosts": 3},
        "workload": [{"pattern": "each", "from": ["h1", "h2"], "to": ["h0"], "messages": 1}],
        "sweep": {"workload.0.message": ["4KiB", "1MiB"], "nic.default.congestion": ["off", "dcqcn"]},
    })
    assert result.workloads["workload.0.message_bytes"] == [4096, 1048576] * 2
    assert not any(name.startswith("nic.default.congestion_") for name in result.ports.to_pydict())
    assert max(result.ports["peak_queue_bytes"]) > 0


def test_parquet_has_the_same_rows(file, command, tmp_path):
    file.write_text(SWEEP.replace("seed = [1, 2, 3]", '"workload.*.depth" = [1, 2]'))
    command(file, "--parquet", tmp_path / "flows.parquet")
    expected = pandas.read_parquet(tmp_path / "flows.parquet")
    pandas.testing.assert_frame_equal(rockery.sweep(file).flows.to_pandas(), expected, check_dtype=False)


def test_a_folder_makes_a_sweep_resumable(file, tmp_path):
    out = tmp_path / "out"
    whole = rockery.sweep(file, folder=out)
    before = contents(out)
    kept = (out / "0.json").stat().st_mtime_ns
    (out / "3.json").unlink()
    (out / "4.part").write_text("{")
    made = []
    again = rockery.sweep(file, folder=out, progress=lambda done, all: made.append(done))
    assert made == [6] and again.reports == whole.reports
    (out / "4.part").unlink()
    assert contents(out) == before and (out / "0.json").stat().st_mtime_ns == kept
    with pytest.raises(ValueError, match="another sweep"):
        rockery.sweep(file, folder=out, seed=5, settings={"workload.*.messages": 3})


def test_a_run_that_fails_ends_the_sweep(file):
    file.write_text(SWEEP.replace("[1024, 4096]", "[1024, 4095]"))
    with pytest.raises(rockery.FabricError, match="mtu"):
        rockery.sweep(file)
    with pytest.raises(ValueError, match="a sweep of 6 runs"):
        rockery.sim(SWEEP)
    assert rockery.sim(SWEEP, point=4).settings == [("nic.default.mtu", "4096"), ("seed", "2")]


def test_ctrl_c_ends_a_sweep(interruptible):
    long = SWEEP.replace("messages = 20", "messages = 100000000")
    program = f"import rockery\nprint('begin', flush=True)\nrockery.sweep({long!r}, workers=2)\n"
    child = interruptible(program)
    assert child.stdout.readline() == "begin\n"
    # Wherever it is meanwhile.
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in said


@pytest.mark.skipif("dask" not in ENGINES, reason="ROCKERY_TEST_ENGINES leaves Dask out")
def test_runs_of_a_killed_worker_are_repeated(file, command):
    distributed = pytest.importorskip("distributed")
    file.write_text(SWEEP.replace("messages = 20", "messages = 400"))
    with distributed.Client(n_workers=2, threads_per_worker=1, host="127.0.0.1",
                            dashboard_address=None) as client:
        victims = [worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()]

        def kill(done, _all):
            if done == 1:
                os.kill(victims[0], signal.SIGKILL)

        result = rockery.sweep(file, engine="dask", client=client, progress=kill)
    assert result.json() == command(file, "--json")

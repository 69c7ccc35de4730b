import gzip
import json
from pathlib import Path

import pytest

from themis_ray.errors import ConfigError, TraceError
from themis_ray.sim.cluster_file import load_cluster
from themis_ray.sim.traces import load_trace, write_themis_csv

HEADER = "app_id,job_id,arrival_s,tuner,model,max_gpus,iterations,serial_iter_s"
ROW = "a,0,0,single,vgg16,4,100,0.5"


def write(path: Path, name: str, *lines: str) -> Path:
    file = path / name
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_trace_is_read_by_apps(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "t.csv",
        HEADER + ",min_gpus,weight,final_loss,decay",
        "b,0,7.5,curve_stopping,m,4,100,0.5,2,3,0.2,0.01",
        "a,0,0,single,m,1,10,1,,,,",
        "b,1,7.5,curve_stopping,m,2,50,0.5,,3,,",
    )
    trace = load_trace(file)
    assert [app.id for app in trace.apps] == ["a", "b"]  # by arrival
    first, second = trace.apps[1].jobs
    assert (first.min_gpus, first.max_gpus, first.work_gpu_s) == (2, 4, 50)
    assert (first.final_loss, first.decay) == (0.2, 0.01)
    assert (second.min_gpus, second.final_loss) == (1, None)
    assert trace.apps[1].weight == 3
    assert trace.jobs == 3


def test_what_is_written_reads_back_the_same_also_packed(tmp_path: Path) -> None:
    trace = load_trace(
        write(tmp_path, "t.csv", HEADER + ",min_gpus", ROW + ",3", "b" + ROW[1:] + ",")
    )
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(write_themis_csv(trace).encode()))
    assert load_trace(packed).apps == trace.apps


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is empty"),
        ([HEADER], "lists no job"),
        (["app_id,job_id"], "line 1: the column 'arrival_s' is missing"),
        ([HEADER + ",min_gpu", ROW + ",1"], "line 1, column 9: no column 'min_gpu'; did you mean"),
        ([HEADER + ",model", ROW + ",x"], "line 1, column 9: 'model' stands there twice"),
        ([HEADER, ROW, "a,1,0"], "line 3: 3 cells, but the header has 8"),
        (
            [HEADER, ROW.replace("4", "four")],
            r"line 2, column 6 \(max_gpus\): 'four' is not a whole",
        ),
        ([HEADER, ROW.replace("4", "0")], "0 is too small; use 1 or more"),
        ([HEADER, ROW.replace("100", "-1")], r"line 2, column 7 \(iterations\): -1 is too small"),
        ([HEADER, ROW.replace("100", "nan")], "'nan' is not finite"),
        ([HEADER, ROW.replace("100", "")], r"column 7 \(iterations\): is empty"),
        (
            [HEADER, ROW.replace("single", "asha")],
            r"column 4 \(tuner\): no tuner 'asha'; use single",
        ),
        ([HEADER, ROW, ROW], r"line 3, column 2 \(job_id\): app 'a' has a job '0' already"),
        (
            [HEADER, ROW, "a,1,9" + ROW[5:]],
            r"line 3, column 3 \(arrival_s\): app 'a' has 0.0 in line 2",
        ),
        ([HEADER + ",min_gpus", ROW + ",5"], r"column 9 \(min_gpus\): 5 is more than max_gpus, 4"),
        (["x,y", "1,2"], "no known trace format"),
        (["", HEADER, ROW.replace("4", "four")], r"line 3, column 6 \(max_gpus\)"),
        ([HEADER, ROW, '"' + "x" * 140_000], "line 3: field larger than .*quotation mark"),
    ],
)
def test_errors_name_line_and_column(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        load_trace(write(tmp_path, "t.csv", *lines) if lines else _empty(tmp_path))


def _empty(path: Path) -> Path:
    (path / "e.csv").write_text("")
    return path / "e.csv"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        load_trace(tmp_path / "none.csv")
    torn = tmp_path / "t.csv.gz"
    torn.write_bytes(gzip.compress(b"x" * 1000)[:-20])
    with pytest.raises(TraceError, match="not a whole gzip file"):
        load_trace(torn)
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="not a text file"):
        load_trace(binary)


def test_tiresias_lengths_are_those_on_all_gpus(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "60_job.csv",
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
        "7,8,30,100,vgg16,200,30",
    )
    (app,) = load_trace(file).apps
    (job,) = app.jobs
    assert (app.arrival_s, job.min_gpus, job.max_gpus, job.work_gpu_s) == (30, 8, 8, 1600)


def gavel_row(gpus: int = 2, steps: int = 100) -> str:
    return f"LM (batch size 5)\tcmd\tdir\t-s\t1\t{steps}\t{gpus}\t1.0\t-1\t60"


def test_gavel_lengths_come_from_the_throughputs(tmp_path: Path) -> None:
    table = tmp_path / "rates.json"
    table.write_text(json.dumps({"v100": {"('LM (batch size 5)', 2)": {"null": 4.0}}}))
    trace = load_trace(write(tmp_path, "g.trace", gavel_row()), throughputs=table)
    (job,) = trace.apps[0].jobs
    assert job.work_gpu_s == pytest.approx(100 / 4 * 2)
    assert trace.apps[0].arrival_s == 60
    with pytest.raises(TraceError, match=r"line 1.*on 4 GPUs is not in the throughput table"):
        load_trace(write(tmp_path, "g.trace", gavel_row(4)), throughputs=table)
    with pytest.raises(TraceError, match="--throughputs"):
        load_trace(write(tmp_path, "g.trace", gavel_row()))
    blank = load_trace(write(tmp_path, "g.trace", gavel_row(), "", ""), throughputs=table)
    assert blank.jobs == 1
    for wrong in ("{}", '{"v100": []}', '{"v100": {"x": 1}}'):
        table.write_text(wrong)
        with pytest.raises(TraceError, match="is no throughput table"):
            load_trace(write(tmp_path, "g.trace", gavel_row()), throughputs=table)


def test_philly_csv_counts_from_the_first_job(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "p.csv",
        "timestamp,duration,num_gpus,application",
        "2017-10-03T12:00:30,100,2,bert",
        "2017-10-03 12:00:00,10,1,cifar10",
    )
    apps = load_trace(file).apps
    assert [(a.arrival_s, a.jobs[0].work_gpu_s, a.jobs[0].model) for a in apps] == [
        (0, 10, "cifar10"),
        (30, 200, "bert"),
    ]
    bad = write(tmp_path, "p.csv", "timestamp,duration,num_gpus", "noon,1,1")
    with pytest.raises(TraceError, match=r"line 2, column 1 \(timestamp\): 'noon' is not an ISO"):
        load_trace(bad)


def test_philly_json_takes_all_attempts_and_the_last_ones_gpus(tmp_path: Path) -> None:
    def attempt(begin: str, end: str | None, *gpus: int) -> dict[str, object]:
        detail = [
            {"ip": f"m{i}", "gpus": [f"gpu{k}" for k in range(n)]} for i, n in enumerate(gpus)
        ]
        return {"start_time": begin, "end_time": end, "detail": detail}

    log = [
        {
            "jobid": "x",
            "vc": "v",
            "user": "u",
            "status": "Pass",
            "submitted_time": "2017-10-09 07:00:00",
            "attempts": [
                attempt("2017-10-09 07:01:00", "2017-10-09 07:02:00", 1),
                attempt("2017-10-09 07:03:00", "2017-10-09 07:04:30", 8, 2),
            ],
        },
        {"jobid": "never ran", "submitted_time": "2017-10-09 06:00:00", "attempts": []},
        {
            "jobid": "no end",
            "submitted_time": "2017-10-09 06:00:00",
            "attempts": [attempt("2017-10-09 06:01:00", None, 1)],
        },
    ]
    file = tmp_path / "cluster_job_log"
    file.write_text(json.dumps(log))
    (app,) = load_trace(file).apps
    assert (app.id, app.jobs[0].max_gpus, app.jobs[0].work_gpu_s) == ("x", 10, 1500)
    for wrong, message in (
        ('[{"jobid": 1}]', "job 1 of the list: 'attempts' is missing"),
        ('[{"attempts": ["x"]}]', "job 1 of the list: 'str' object"),
        ('[{"attempts": [], "submitted_time": 5}]', "job 1 of the list: 'int' object"),
        ("[5]", "job 1 of the list"),
    ):
        file.write_text(wrong)
        with pytest.raises(TraceError, match=message):
            load_trace(file)
    file.write_text("[")
    with pytest.raises(TraceError, match="line 1, column 2: not JSON"):
        load_trace(file)


def test_pcs_divides_the_service_and_adds_up_the_sleeps(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "pcs.csv",
        "app_id,submit_time,service,num_jobs,sleep_time,model_name",
        "0,0,100,1,5,Vgg",
        "1,0,100,4,10,Vgg",
    )
    apps = load_trace(file).apps
    assert [app.arrival_s for app in apps] == [5, 15]
    assert [job.work_gpu_s for job in apps[1].jobs] == [25] * 4


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace format 'xml'; there are: themis"):
        load_trace(write(tmp_path, "t.csv", HEADER, ROW), format="xml")


def test_a_cluster_has_machines_and_profiles(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "c.yaml",
        "name: mine",
        "machines: [{count: 2, gpus: 4, slots: 2, rack: r1}, {count: 1, gpus: 2}]",
        "models: {VGG16: {rack: 1.29, cluster: 1.45, checkpoint_s: 3, skew: 0.7}}",
    )
    sim = load_cluster(file)
    assert [(m.id, m.gpus, m.slots, m.rack) for m in sim.cluster.machines] == [
        ("m0", 4, 2, "r1"),
        ("m1", 4, 2, "r1"),
        ("m2", 2, 1, "r0"),
    ]
    vgg = sim.profile("vgg16 (batch size 8)")
    assert list(vgg.by_level.values()) == [1, 1, 1.29, 1.45]
    assert vgg.move is not None
    assert (vgg.move.checkpoint_s, vgg.move.start_s, vgg.skew) == (3, 35, 0.7)
    assert list(sim.profile("unheard of").by_level.values()) == [1, 1, 1.1, 1.3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("machines: []", "machines: list should have at least 1"),
        ("machines: [{count: 1}]", r"machines\[0\].gpus: field required"),
        ("machines: [{gpus: 4, slots: 3}]", r"machines\[0\].slots: 4 GPUs cannot be divided"),
        ("machines: [{gpus: 4, color: red}]", r"machines\[0\].color: no such field"),
        ("machines: [{gpus: 4}]\nmodels: {m: {rack: 0.5}}", r"models.m.rack: input should be"),
        ("machines: [", "line 2, column 1: not YAML: .*found '<stream end>'"),
        ("machines: [{gpus: 4}]\nmodels: {m: {rack: .inf}}", r"models.m.rack: .*finite"),
        ("machines: [{gpus: 4}]\nmodels: {M: {}, m: {}}", "models.m: stands there twice"),
        ("just text", "needs the fields name, machines"),
    ],
)
def test_cluster_errors_name_the_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_cluster(write(tmp_path, "c.yaml", text))


def test_blank_lines_are_passed_over(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, "t.csv", "", HEADER, "", ROW, ""))
    assert trace.jobs == 1

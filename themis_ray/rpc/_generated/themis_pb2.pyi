from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEVEL_UNSPECIFIED: _ClassVar[Level]
    LEVEL_SLOT: _ClassVar[Level]
    LEVEL_MACHINE: _ClassVar[Level]
    LEVEL_RACK: _ClassVar[Level]
    LEVEL_CLUSTER: _ClassVar[Level]
LEVEL_UNSPECIFIED: Level
LEVEL_SLOT: Level
LEVEL_MACHINE: Level
LEVEL_RACK: Level
LEVEL_CLUSTER: Level

class AgentMessage(_message.Message):
    __slots__ = ("register", "report", "bid", "group_request", "group_release", "gpus_return", "done")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    BID_FIELD_NUMBER: _ClassVar[int]
    GROUP_REQUEST_FIELD_NUMBER: _ClassVar[int]
    GROUP_RELEASE_FIELD_NUMBER: _ClassVar[int]
    GPUS_RETURN_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    register: Register
    report: Report
    bid: Bid
    group_request: GroupRequest
    group_release: GroupRelease
    gpus_return: GpusReturn
    done: Done
    def __init__(self, register: _Optional[_Union[Register, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., bid: _Optional[_Union[Bid, _Mapping]] = ..., group_request: _Optional[_Union[GroupRequest, _Mapping]] = ..., group_release: _Optional[_Union[GroupRelease, _Mapping]] = ..., gpus_return: _Optional[_Union[GpusReturn, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ...) -> None: ...

class ArbiterMessage(_message.Message):
    __slots__ = ("welcome", "report_request", "offer", "leases", "group_refused", "failure")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REPORT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    GROUP_REFUSED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    report_request: ReportRequest
    offer: Offer
    leases: Leases
    group_refused: GroupRefused
    failure: Failure
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., report_request: _Optional[_Union[ReportRequest, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., leases: _Optional[_Union[Leases, _Mapping]] = ..., group_refused: _Optional[_Union[GroupRefused, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class Allocation(_message.Message):
    __slots__ = ("gpus",)
    class GpusEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    GPUS_FIELD_NUMBER: _ClassVar[int]
    gpus: _containers.ScalarMap[str, int]
    def __init__(self, gpus: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("protocol_version", "app", "weight", "report", "session_secret", "driver", "bundle", "groups")
    class BundleEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    SESSION_SECRET_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    app: str
    weight: float
    report: AppReport
    session_secret: str
    driver: Driver
    bundle: _containers.ScalarMap[str, float]
    groups: _containers.RepeatedCompositeFieldContainer[HeldGroup]
    def __init__(self, protocol_version: _Optional[int] = ..., app: _Optional[str] = ..., weight: _Optional[float] = ..., report: _Optional[_Union[AppReport, _Mapping]] = ..., session_secret: _Optional[str] = ..., driver: _Optional[_Union[Driver, _Mapping]] = ..., bundle: _Optional[_Mapping[str, float]] = ..., groups: _Optional[_Iterable[_Union[HeldGroup, _Mapping]]] = ...) -> None: ...

class Driver(_message.Message):
    __slots__ = ("host", "pid", "job_id")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    host: str
    pid: int
    job_id: str
    def __init__(self, host: _Optional[str] = ..., pid: _Optional[int] = ..., job_id: _Optional[str] = ...) -> None: ...

class HeldGroup(_message.Message):
    __slots__ = ("group", "placement_group_id", "allocation")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    group: str
    placement_group_id: str
    allocation: Allocation
    def __init__(self, group: _Optional[str] = ..., placement_group_id: _Optional[str] = ..., allocation: _Optional[_Union[Allocation, _Mapping]] = ...) -> None: ...

class AppReport(_message.Message):
    __slots__ = ("r", "t_shared_s", "t_ideal_s", "wants", "gang", "jobs", "pinned", "elapsed_s", "measured", "notes", "phases")
    R_FIELD_NUMBER: _ClassVar[int]
    T_SHARED_S_FIELD_NUMBER: _ClassVar[int]
    T_IDEAL_S_FIELD_NUMBER: _ClassVar[int]
    WANTS_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_S_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    r: float
    t_shared_s: float
    t_ideal_s: float
    wants: int
    gang: int
    jobs: _containers.RepeatedCompositeFieldContainer[JobReport]
    pinned: Allocation
    elapsed_s: float
    measured: _containers.RepeatedCompositeFieldContainer[MeasuredSlowdown]
    notes: _containers.RepeatedScalarFieldContainer[str]
    phases: _containers.RepeatedCompositeFieldContainer[PhaseWork]
    def __init__(self, r: _Optional[float] = ..., t_shared_s: _Optional[float] = ..., t_ideal_s: _Optional[float] = ..., wants: _Optional[int] = ..., gang: _Optional[int] = ..., jobs: _Optional[_Iterable[_Union[JobReport, _Mapping]]] = ..., pinned: _Optional[_Union[Allocation, _Mapping]] = ..., elapsed_s: _Optional[float] = ..., measured: _Optional[_Iterable[_Union[MeasuredSlowdown, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ..., phases: _Optional[_Iterable[_Union[PhaseWork, _Mapping]]] = ...) -> None: ...

class PhaseWork(_message.Message):
    __slots__ = ("gpu_s", "gpus")
    GPU_S_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    gpu_s: float
    gpus: float
    def __init__(self, gpu_s: _Optional[float] = ..., gpus: _Optional[float] = ...) -> None: ...

class MeasuredSlowdown(_message.Message):
    __slots__ = ("model", "parts", "level", "s")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    S_FIELD_NUMBER: _ClassVar[int]
    model: str
    parts: _containers.RepeatedScalarFieldContainer[int]
    level: Level
    s: float
    def __init__(self, model: _Optional[str] = ..., parts: _Optional[_Iterable[int]] = ..., level: _Optional[_Union[Level, str]] = ..., s: _Optional[float] = ...) -> None: ...

class JobReport(_message.Message):
    __slots__ = ("id", "iterations_left", "serial_iter_s", "min_gpus", "max_gpus", "iterations_done", "attained_gpu_s", "model", "loss_decrease", "held", "started_ago_s", "waited_s", "skew", "slowdown", "restart_s", "spans")
    ID_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_LEFT_FIELD_NUMBER: _ClassVar[int]
    SERIAL_ITER_S_FIELD_NUMBER: _ClassVar[int]
    MIN_GPUS_FIELD_NUMBER: _ClassVar[int]
    MAX_GPUS_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_DONE_FIELD_NUMBER: _ClassVar[int]
    ATTAINED_GPU_S_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LOSS_DECREASE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    STARTED_AGO_S_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    SKEW_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    RESTART_S_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    id: str
    iterations_left: float
    serial_iter_s: float
    min_gpus: int
    max_gpus: int
    iterations_done: float
    attained_gpu_s: float
    model: str
    loss_decrease: float
    held: Allocation
    started_ago_s: float
    waited_s: float
    skew: float
    slowdown: _containers.RepeatedScalarFieldContainer[float]
    restart_s: float
    spans: bool
    def __init__(self, id: _Optional[str] = ..., iterations_left: _Optional[float] = ..., serial_iter_s: _Optional[float] = ..., min_gpus: _Optional[int] = ..., max_gpus: _Optional[int] = ..., iterations_done: _Optional[float] = ..., attained_gpu_s: _Optional[float] = ..., model: _Optional[str] = ..., loss_decrease: _Optional[float] = ..., held: _Optional[_Union[Allocation, _Mapping]] = ..., started_ago_s: _Optional[float] = ..., waited_s: _Optional[float] = ..., skew: _Optional[float] = ..., slowdown: _Optional[_Iterable[float]] = ..., restart_s: _Optional[float] = ..., spans: bool = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("report", "round_id")
    REPORT_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    report: AppReport
    round_id: int
    def __init__(self, report: _Optional[_Union[AppReport, _Mapping]] = ..., round_id: _Optional[int] = ...) -> None: ...

class Bid(_message.Message):
    __slots__ = ("round_id", "r_nothing", "rows")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    R_NOTHING_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    round_id: int
    r_nothing: float
    rows: _containers.RepeatedCompositeFieldContainer[BidRow]
    def __init__(self, round_id: _Optional[int] = ..., r_nothing: _Optional[float] = ..., rows: _Optional[_Iterable[_Union[BidRow, _Mapping]]] = ...) -> None: ...

class BidRow(_message.Message):
    __slots__ = ("r", "pinned", "parts", "level")
    R_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    r: float
    pinned: Allocation
    parts: _containers.RepeatedScalarFieldContainer[int]
    level: Level
    def __init__(self, r: _Optional[float] = ..., pinned: _Optional[_Union[Allocation, _Mapping]] = ..., parts: _Optional[_Iterable[int]] = ..., level: _Optional[_Union[Level, str]] = ...) -> None: ...

class GroupRequest(_message.Message):
    __slots__ = ("group", "allocation")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    group: str
    allocation: Allocation
    def __init__(self, group: _Optional[str] = ..., allocation: _Optional[_Union[Allocation, _Mapping]] = ...) -> None: ...

class GroupRelease(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class GpusReturn(_message.Message):
    __slots__ = ("allocation",)
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    allocation: Allocation
    def __init__(self, allocation: _Optional[_Union[Allocation, _Mapping]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("why",)
    WHY_FIELD_NUMBER: _ClassVar[int]
    why: str
    def __init__(self, why: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("session_secret", "policy", "lease_s", "notice_s", "grace_s", "unit", "cluster_gpus", "largest_machine_gpus")
    SESSION_SECRET_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    NOTICE_S_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_GPUS_FIELD_NUMBER: _ClassVar[int]
    LARGEST_MACHINE_GPUS_FIELD_NUMBER: _ClassVar[int]
    session_secret: str
    policy: str
    lease_s: float
    notice_s: float
    grace_s: float
    unit: str
    cluster_gpus: int
    largest_machine_gpus: int
    def __init__(self, session_secret: _Optional[str] = ..., policy: _Optional[str] = ..., lease_s: _Optional[float] = ..., notice_s: _Optional[float] = ..., grace_s: _Optional[float] = ..., unit: _Optional[str] = ..., cluster_gpus: _Optional[int] = ..., largest_machine_gpus: _Optional[int] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("round_id", "kept", "n_avg", "cluster_gpus")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    N_AVG_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_GPUS_FIELD_NUMBER: _ClassVar[int]
    round_id: int
    kept: Allocation
    n_avg: float
    cluster_gpus: int
    def __init__(self, round_id: _Optional[int] = ..., kept: _Optional[_Union[Allocation, _Mapping]] = ..., n_avg: _Optional[float] = ..., cluster_gpus: _Optional[int] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("round_id", "offer", "kept", "expiring", "racks", "n_avg", "cluster_gpus", "lease_s", "measured")
    class RacksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    EXPIRING_FIELD_NUMBER: _ClassVar[int]
    RACKS_FIELD_NUMBER: _ClassVar[int]
    N_AVG_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_GPUS_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    round_id: int
    offer: Allocation
    kept: Allocation
    expiring: Allocation
    racks: _containers.ScalarMap[str, str]
    n_avg: float
    cluster_gpus: int
    lease_s: float
    measured: _containers.RepeatedCompositeFieldContainer[MeasuredSlowdown]
    def __init__(self, round_id: _Optional[int] = ..., offer: _Optional[_Union[Allocation, _Mapping]] = ..., kept: _Optional[_Union[Allocation, _Mapping]] = ..., expiring: _Optional[_Union[Allocation, _Mapping]] = ..., racks: _Optional[_Mapping[str, str]] = ..., n_avg: _Optional[float] = ..., cluster_gpus: _Optional[int] = ..., lease_s: _Optional[float] = ..., measured: _Optional[_Iterable[_Union[MeasuredSlowdown, _Mapping]]] = ...) -> None: ...

class Leases(_message.Message):
    __slots__ = ("leases", "reason")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    reason: Reason
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., reason: _Optional[_Union[Reason, _Mapping]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("id", "held", "pending", "expires_in_s", "final")
    ID_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_S_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    id: str
    held: Allocation
    pending: Allocation
    expires_in_s: float
    final: bool
    def __init__(self, id: _Optional[str] = ..., held: _Optional[_Union[Allocation, _Mapping]] = ..., pending: _Optional[_Union[Allocation, _Mapping]] = ..., expires_in_s: _Optional[float] = ..., final: bool = ...) -> None: ...

class GroupRefused(_message.Message):
    __slots__ = ("group", "reason")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group: str
    reason: Reason
    def __init__(self, group: _Optional[str] = ..., reason: _Optional[_Union[Reason, _Mapping]] = ...) -> None: ...

class Reason(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("app",)
    APP_FIELD_NUMBER: _ClassVar[int]
    app: str
    def __init__(self, app: _Optional[str] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("why",)
    WHY_FIELD_NUMBER: _ClassVar[int]
    why: str
    def __init__(self, why: _Optional[str] = ...) -> None: ...

class StopReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JsonReply(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

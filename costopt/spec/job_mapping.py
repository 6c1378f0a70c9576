"""The conversion of job.yaml to the domain's Job, with the checks between its fields."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path

from costopt.domain.cached_data import CachedData
from costopt.domain.job import (
    USD_PER_HOUR_WAITED,
    Budget,
    CheckpointSpec,
    DataLocation,
    Job,
    Phase,
    Resources,
)
from costopt.domain.model_card import DerivedFigure, GpuMemory, ModelCard
from costopt.spec.array_section import (
    JobParts,
    ParametersError,
    array_parts,
    placeholder_problems,
    task_array,
)
from costopt.spec.catalog_names import (
    DUPLICATE,
    UNKNOWN_NAME,
    gpu_model_error,
    gpu_models,
    unknown_region,
)
from costopt.spec.checkpoint_mapping import CheckpointMapping
from costopt.spec.derived_figures import cache_figures, gang_figures
from costopt.spec.fields import MAX_DURATION_S, did_you_mean, missing_unit
from costopt.spec.gpu_text import split_gpus
from costopt.spec.job_file import (
    NOT_OF_ARRAYS,
    ArrayJobFile,
    CacheSection,
    CheckpointSection,
    ModelJobFile,
    PhaseSection,
    ThroughputSection,
    TimedJobFile,
    TrainingJobFile,
)
from costopt.spec.measured_gangs import bound_by_measured, measured_gangs
from costopt.spec.moments import has_no_zone, is_duration, moment, zone_note
from costopt.spec.node_setup import to_secrets
from costopt.spec.schedule import MAX_NAME_LENGTH, SCHEDULED_AT, CatchUp, Overlap
from costopt.spec.throughput_mapping import ThroughputMapping
from costopt.spec.work_mapping import taken_sample, work_amount
from costopt.spec.yaml_document import VALUE_ERROR, Document, FieldPath, SpecFileError, SpecProblem

SCHEMES = ("file", "s3", "gs")
SHARE_TOLERANCE = 1e-6
HORIZON = timedelta(seconds=MAX_DURATION_S)
BEYOND_HORIZON = "beyond_horizon"
IN_PAST = "in_past"
GangJobFile = TrainingJobFile | ModelJobFile | TimedJobFile
AnyJobFile = GangJobFile | ArrayJobFile
GANG_SIZES = ("gpus", "min_nodes", "max_nodes", "min_gpus", "max_gpus", "gpus_per_group")


def job_of(file: AnyJobFile, document: Document, now: datetime) -> Job:
    """The Job that ``file`` means. Raises SpecFileError with every contradiction."""
    return _Mapping(file, document).job(now)


class _Mapping:
    """One job file on its way into the domain; collects what contradicts."""

    def __init__(self, file: AnyJobFile, document: Document) -> None:
        self.file = file
        self.document = document
        self.folder = Path(document.path).absolute().parent
        self.problems: list[SpecProblem] = []
        self.derived: list[DerivedFigure] = []
        self.time_notes: list[str] = []

    def job(self, now: datetime) -> Job:
        """The whole job."""
        file = self.file
        parts = self._array(file) if isinstance(file, ArrayJobFile) else self._training(file)
        data = self._data()
        cache = tuple(self._cached(number, said) for number, said in enumerate(file.cache))
        start_at = self._start_at(now)
        deadline_at = self._deadline_at(start_at, now)
        self._environment()
        self._schedule()
        if self.problems:
            raise SpecFileError(self.problems)
        return Job(
            name=file.name,
            work=parts.work,
            start_at=start_at,
            deadline_at=deadline_at,
            resources=parts.resources,
            throughput=parts.throughput,
            checkpoint=parts.checkpoint,
            phases=parts.phases,
            array=parts.array,
            run=tuple(file.run),
            env=tuple(file.env.items()),
            image=file.image,
            setup=tuple(file.setup),
            secrets=to_secrets(file.secrets, file.image_login),
            workdir=str(self._absolute(file.workdir)),
            budget=self._budget(),
            data=data,
            cache=cache,
            startup_s=file.startup,
            tenant=file.tenant,
            elastic=file.elastic,
            max_failures=file.max_failures,
            keep_failed_s=file.keep_failed,
            derived=(*self.derived, *gang_figures(parts.resources), *cache_figures(cache)),
            usd_per_hour_waited=self._usd_per_hour_waited(),
            time_notes=tuple(self.time_notes),
        )

    def _training(self, file: GangJobFile) -> JobParts:
        """The parts of a job whose nodes work together."""
        card = None if file.model is None else file.model.card()
        work = work_amount(file, card, self.derived, self._refuse)
        gangs = measured_gangs(file)
        resources, figures = bound_by_measured(self._resources(card), file.resources, gangs)
        self.derived.extend(figures)
        speeds = ThroughputMapping(
            resources.gpu_models, work.unit, card, self.derived, self._refuse
        )
        said, taken = file.throughput or ThroughputSection(), taken_sample(file, work, self._refuse)
        return JobParts(
            work=work,
            resources=resources,
            throughput=speeds.throughput(said, ("throughput",), taken),
            phases=self._phases(resources, speeds),
            checkpoint=self._checkpoint(file.checkpoint, card, resources),
        )

    def _memory(self, card: ModelCard | None) -> GpuMemory | None:
        """What the model takes, unless the file says what a GPU must have."""
        if card is None or self.file.resources.min_gpu_memory_gib is not None:
            return None
        memory = card.memory()
        self.derived.append(DerivedFigure("memory of the gang", "GiB", memory.gang_gib))
        self.derived.append(DerivedFigure("memory of each GPU", "GiB", memory.gpu_gib))
        return memory

    def _array(self, file: ArrayJobFile) -> JobParts:
        """The parts of a job whose work is tasks."""
        self._refuse_training_fields()
        said = file.array
        try:
            array = task_array(said, self.folder)
        except ParametersError as error:
            self._refuse(("array",), str(error))
            raise SpecFileError(self.problems) from None
        for message in placeholder_problems(file.run, array.names):
            self._refuse(("run",), message, UNKNOWN_NAME)
        for section in ("env", "secrets"):
            for name in set(array.names).intersection(getattr(self.file, section)):
                message = "is a parameter of the tasks, too: give one another name"
                self._refuse((section, name), message)
        times = self._task_times(said.duration)
        workdir = str(self._absolute(self.file.workdir))
        return array_parts(array, said.parallel, times, self._resources(), workdir)

    def _refuse_training_fields(self) -> None:
        for name in self.file.model_fields_set.intersection(NOT_OF_ARRAYS):
            self._refuse((name,), "a job with an array has no such field: see array")
        sizes = self.file.resources.model_fields_set.intersection(GANG_SIZES)
        for name in sizes | ({"gpu"} if self._gpu_count() else set()):
            self._refuse(("resources", name), "array.parallel says how many tasks run at once")

    def _task_times(self, said: float | dict[str, float]) -> dict[str, float]:
        """Seconds of a task by GPU model; all that may run it, where one time is for all."""
        if isinstance(said, dict):
            for model in said:
                self._check_gpu(("array", "duration", model), model)
            return said
        return dict.fromkeys(self._gpu_models() or gpu_models(), said)

    def _refuse(self, at: FieldPath, message: str, code: str = VALUE_ERROR) -> None:
        self.problems.append(self.document.problem(at, message, code=code))

    def _start_at(self, now: datetime) -> datetime:
        if self.file.start is None:
            return now
        start_at = self._moment(("start",), self.file.start, now) or now
        if start_at - now > HORIZON:
            message = f"expected at most ten years from now, got {self.file.start}"
            self._refuse(("start",), message, BEYOND_HORIZON)
            return now
        return start_at

    def _usd_per_hour_waited(self) -> float:
        said = self.file.value
        return USD_PER_HOUR_WAITED if said is None else said.usd_per_hour_waited * said.priority

    def _deadline_at(self, start_at: datetime, now: datetime) -> datetime | None:
        text = self.file.deadline
        if text is None:
            if self.file.value is None:
                message = "is missing: say when it must be done, or under value what an hour costs"
                self._refuse(("deadline",), message, "missing")
            return None
        question = missing_unit(str(self.document.values["deadline"]))
        if question is not None:
            self._refuse(("deadline",), question, "missing_unit")
            return start_at
        deadline_at = self._moment(("deadline",), text, start_at)
        if deadline_at is None:
            return start_at
        if deadline_at <= now:
            message = f"{text} is in the past (now is {_shown(now)})"
            self._refuse(("deadline",), message, IN_PAST)
        elif deadline_at <= start_at:
            self._refuse(("deadline",), f"{text} is not after the start, {_shown(start_at)}")
        elif deadline_at - max(start_at, now) > HORIZON:
            message = f"expected at most ten years after the start, got {text}"
            self._refuse(("deadline",), message, BEYOND_HORIZON)
        return deadline_at

    def _moment(self, at: FieldPath, text: str, origin: datetime) -> datetime | None:
        """Its form was checked with the file's shape; only the end of time is left to meet."""
        try:
            when = moment(text, origin)
        except ValueError as error:
            self._refuse(at, f"{error}, got {text!r}")
            return None
        if has_no_zone(text):
            self.time_notes.append(f"{at[-1]}: {zone_note(text, when)}")
        return when

    def _resources(self, card: ModelCard | None = None) -> Resources:
        asked, models, count = self.file.resources, self._gpu_models(), self._gpu_count()
        most = asked.gpus or count
        min_gpus, max_gpus = asked.min_gpus or most, asked.max_gpus or most
        max_nodes = asked.max_nodes or max_gpus or min_gpus or asked.min_nodes
        at: FieldPath = ("resources",)
        if max_nodes < asked.min_nodes:
            self._refuse((*at, "max_nodes"), f"{max_nodes} is below min_nodes, {asked.min_nodes}")
        if asked.max_gpus and asked.min_gpus and asked.max_gpus < asked.min_gpus:
            self._refuse((*at, "max_gpus"), f"{asked.max_gpus} is below min_gpus, {asked.min_gpus}")
        if asked.max_gpus and asked.max_gpus < asked.min_nodes:
            self._refuse(
                (*at, "max_gpus"), f"{asked.max_gpus} is below min_nodes, {asked.min_nodes}"
            )
        if asked.gpus and not (min_gpus or 1) <= asked.gpus <= (max_gpus or asked.gpus):
            message = f"{asked.gpus} is outside the {min_gpus} to {max_gpus} of the gang"
            self._refuse((*at, "gpus"), message)
        for index, model in enumerate(models):
            named_at = (*at, "gpu") if asked.gpu else (*at, "gpu_models", index)
            self._check_gpu(named_at, model)
        for name in ("gpu_models", "gpus") if asked.gpu else ():
            if name in asked.model_fields_set:
                self._refuse((*at, name), "gpu says that already: leave one of them out")
        return Resources(
            gpu_models=models,
            instance_types=tuple(asked.instance_types),
            min_nodes=asked.min_nodes,
            max_nodes=max_nodes,
            min_gpus=min_gpus,
            max_gpus=max_gpus,
            asked_gpus=asked.gpus,
            min_gpu_memory_gib=asked.min_gpu_memory_gib,
            min_memory_gib=asked.min_memory_gib,
            memory=self._memory(card),
            gpus_per_group=asked.gpus_per_group,
            zone_traffic_gib=asked.zone_traffic_gib,
        )

    def _gpu_models(self) -> tuple[str, ...]:
        asked = self.file.resources
        return (split_gpus(asked.gpu)[0],) if asked.gpu else tuple(asked.gpu_models)

    def _gpu_count(self) -> int | None:
        asked = self.file.resources
        return split_gpus(asked.gpu)[1] if asked.gpu else None

    def _check_gpu(self, at: FieldPath, model: str) -> None:
        reason = gpu_model_error(model)
        if reason is not None:
            self._refuse(at, reason, UNKNOWN_NAME)

    def _phases(self, resources: Resources, speeds: ThroughputMapping) -> tuple[Phase, ...]:
        fewest, most = resources.min_nodes, resources.max_nodes
        if not self.file.phases:
            return (Phase("all", 1.0, fewest, most),)
        phases = tuple(
            self._phase(("phases", index), said, resources, speeds)
            for index, said in enumerate(self.file.phases)
        )
        total = math.fsum(phase.share for phase in phases)
        if abs(total - 1) > SHARE_TOLERANCE:
            self._refuse(("phases",), f"the shares sum to {total:g}; they must sum to 1")
        names = [phase.name for phase in phases]
        for index, phase in enumerate(phases):
            if phase.name in names[:index]:
                message = f"{phase.name!r} names two phases"
                self._refuse(("phases", index, "name"), message, DUPLICATE)
            if phase.max_nodes < phase.min_nodes:
                message = f"{phase.max_nodes} is below min_nodes, {phase.min_nodes}"
                self._refuse(("phases", index, "max_nodes"), message)
            elif not fewest <= phase.min_nodes <= phase.max_nodes <= most:
                message = (
                    f"{phase.min_nodes} to {phase.max_nodes} nodes are outside the "
                    f"{fewest} to {most} of resources"
                )
                self._refuse(("phases", index), message)
        return phases

    def _phase(
        self, at: FieldPath, said: PhaseSection, resources: Resources, speeds: ThroughputMapping
    ) -> Phase:
        speed, pause = said.throughput, said.evaluation
        if pause is not None and pause.duration == 0:
            self._refuse((*at, "evaluation", "duration"), "expected a duration above 0")
        return Phase(
            name=said.name,
            share=said.share,
            min_nodes=said.min_nodes or resources.min_nodes,
            max_nodes=said.max_nodes or resources.max_nodes,
            may_pause=said.may_pause,
            throughput=None if speed is None else speeds.throughput(speed, (*at, "throughput")),
            evaluate_every=None if pause is None else pause.every,
            evaluation_s=0.0 if pause is None else pause.duration,
        )

    def _checkpoint(
        self, said: CheckpointSection, card: ModelCard | None, resources: Resources
    ) -> CheckpointSpec:
        self._check_region(("checkpoint", "region"), said.region)
        mapping = CheckpointMapping(said, card, resources, self.derived, self._refuse)
        return mapping.spec(self._resolved(said.uri, ("checkpoint", "uri")))

    def _budget(self) -> Budget:
        said = self.file.budget
        return Budget(said.usd, said.kwh, said.usd_per_month, said.usd_per_hour)

    def _data(self) -> DataLocation | None:
        said = self.file.data
        if said is None:
            return None
        self._check_region(("data", "region"), said.region)
        return DataLocation(said.uri, said.size_gib, said.region)

    def _cached(self, number: int, said: CacheSection) -> CachedData:
        at: FieldPath = ("cache", number)
        self._check_region((*at, "region"), said.region)
        if said.to in [other.to for other in self.file.cache[:number]]:
            self._refuse((*at, "to"), f"{said.to!r} names two caches", DUPLICATE)
        if said.in_image and not said.to.startswith("/"):
            self._refuse((*at, "to"), "expected the absolute path that the image has the data at")
        uri = self._resolved(said.uri, (*at, "uri"))
        return CachedData(
            uri, said.to, said.size_gib, said.region, said.sha256, said.in_image, said.gbps
        )

    def _check_region(self, at: FieldPath, region: str | None) -> None:
        reason = None if region is None else unknown_region(region)
        if reason is not None:
            self._refuse(at, reason, UNKNOWN_NAME)

    def _resolved(self, uri: str, at: FieldPath) -> str:
        """Local places as absolute paths; s3:// and gs:// as they stand."""
        scheme, separator, rest = uri.partition("://")
        if not separator:
            return str(self._absolute(uri))
        if scheme not in SCHEMES:
            allowed = "a path, " + ", ".join(f"{s}://" for s in SCHEMES)
            near = did_you_mean(scheme, SCHEMES)
            message = f"the scheme {scheme!r} is not known; expected {allowed}{near}"
            self._refuse(at, message, UNKNOWN_NAME)
        if scheme == "file":
            if not rest.startswith("/"):
                message = f"expected an absolute path after file://, got {uri!r}"
                self._refuse(at, message, "not_absolute")
            return str(self._absolute(rest or "/"))
        if not rest.strip("/"):
            self._refuse(at, f"expected {scheme}://bucket/prefix, got {uri!r}", "no_bucket")
        return uri

    def _absolute(self, path: str) -> Path:
        if path.startswith("~/"):
            path = f"{Path.home()}{path[1:]}"
        return Path(_normal(self.folder / path))

    def _schedule(self) -> None:
        """Check that each occurrence of a recurring job can be a job of its own."""
        if self.file.schedule is None:
            return
        section = self.file.schedule
        if len(self.file.name) > MAX_NAME_LENGTH:
            self._refuse(
                ("name",), f"expected at most {MAX_NAME_LENGTH} characters of a job with a schedule"
            )
        if self.file.start is not None:
            self._refuse(("start",), "a job with a schedule starts when its schedule says")
        due = self.file.deadline
        if due is not None and not is_duration(due):
            self._refuse(
                ("deadline",), "expected a duration, such as 6h, which counts from each occurrence"
            )
        if section.catch_up is CatchUp.ALL and section.overlap is not Overlap.ALLOW:
            self._refuse(("schedule", "catch_up"), "all needs overlap: allow")
        if SCHEDULED_AT in self.file.env:
            self._refuse(("env", SCHEDULED_AT), "is set for each occurrence of the schedule")

    def _environment(self) -> None:
        login = self.file.image_login
        if login is not None and self.file.image is None:
            self._refuse(("image_login",), "is for an image, and the job file names none")
        if login is not None and login.as_file:
            self._refuse(("image_login", "as_file"), "is of no use here: leave it out")
        for name in self.file.secrets.keys() & self.file.env.keys():
            self._refuse(("secrets", name), "is a variable of env, too: give one another name")
        for name in self.file.env:
            if "=" in name or "\0" in name:
                message = "a variable's name holds neither '=' nor a null byte"
                self.problems.append(self.document.problem(("env", name), message, on_key=True))


def _normal(path: Path) -> str:
    """Without ``.`` and ``..``; links are left as they are."""
    import os.path

    return os.path.normpath(path)


def _shown(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")

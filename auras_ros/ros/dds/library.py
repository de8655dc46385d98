"""The functions of libddsc that this layer calls, declared once for ctypes and checked at import.

Reason: the Python binding of Cyclone DDS serialises in Python (92 ms for one image); the C library does not.
ctypes releases the GIL around every call. The topic descriptor and the serdata calls are private to libddsc,
so the version is pinned and a missing symbol is reported by name.

It never interprets a payload and holds no state beyond the loaded library.
"""

from __future__ import annotations

import ctypes as ct
import importlib.machinery
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PINNED_VERSION = "11.0.1"
INFINITE_NS = 0x7FFFFFFFFFFFFFFF


BUILTIN_PUBLICATION = 0x7FFF0003
BUILTIN_SUBSCRIPTION = 0x7FFF0004
LOG_ERROR = 2  # DDS_LC_ERROR


class DdsError(RuntimeError):
    """A call into libddsc failed; the message names the entity and libddsc's reason."""


class Iov(ct.Structure):
    """ddsrt_iovec_t."""

    _fields_ = [("base", ct.c_void_p), ("len", ct.c_size_t)]


class Blob(ct.Structure):
    """dds_type_meta_ser."""

    _fields_ = [("data", ct.c_void_p), ("sz", ct.c_uint32)]


class Descriptor(ct.Structure):
    """dds_topic_descriptor_t of the pinned version."""

    _fields_ = [
        ("size", ct.c_uint32), ("align", ct.c_uint32), ("flagset", ct.c_uint32), ("nkeys", ct.c_uint32),
        ("typename", ct.c_char_p), ("keys", ct.c_void_p), ("nops", ct.c_uint32),
        ("ops", ct.POINTER(ct.c_uint32)), ("meta", ct.c_char_p), ("type_information", Blob),
        ("type_mapping", Blob), ("restrict_data_representation", ct.c_uint32),
    ]  # fmt: skip


class SampleInfo(ct.Structure):
    """dds_sample_info_t."""

    _fields_ = [
        ("sample_state", ct.c_int), ("view_state", ct.c_int), ("instance_state", ct.c_int),
        ("valid_data", ct.c_bool), ("source_timestamp", ct.c_int64), ("instance_handle", ct.c_uint64),
        ("publication_handle", ct.c_uint64), ("ranks", ct.c_uint32 * 5),
    ]  # fmt: skip


class Endpoint(ct.Structure):
    """dds_builtintopic_endpoint_t."""

    _fields_ = [
        ("key", ct.c_uint8 * 16), ("participant_key", ct.c_uint8 * 16), ("participant_handle", ct.c_uint64),
        ("topic_name", ct.c_char_p), ("type_name", ct.c_char_p), ("qos", ct.c_void_p),
    ]  # fmt: skip


class Statistic(ct.Structure):
    """dds_stat_keyvalue."""

    _fields_ = [("name", ct.c_char_p), ("kind", ct.c_int), ("u64", ct.c_uint64)]


def _library_path() -> Path:
    """The path of libddsc in the wheel, found without importing the wheel's Python part (which takes 0.3 s)."""
    spec = importlib.util.find_spec("cyclonedds")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            f"no ROS 2 transport: rclpy is not importable and cyclonedds is not installed "
            f"(pip install cyclonedds=={PINNED_VERSION})"
        )
    hint = Path(spec.submodule_search_locations[0]) / "__library__.py"
    module_spec = importlib.util.spec_from_file_location("_cyclonedds_library", hint)
    if not hint.exists() or module_spec is None or module_spec.loader is None:
        raise ImportError(f"cyclonedds has no {hint.name}: expected the wheel of version {PINNED_VERSION}")
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return Path(str(module.library_path))


def _load() -> ct.CDLL:
    path = _library_path()
    try:
        return ct.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"libddsc at {path} does not load: {error}") from error


def declare(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    """The named function with its types set. Raises ImportError, naming symbol and pinned version, if it is missing."""
    try:
        function = getattr(library, name)
    except AttributeError:
        try:
            found = version("cyclonedds")
        except PackageNotFoundError:
            found = "of unknown version"
        raise ImportError(
            f"libddsc lacks the symbol {name}: cyclonedds {found} is installed, {PINNED_VERSION} is needed"
        ) from None
    function.restype, function.argtypes = result, list(arguments)
    return function


_LIBRARY = _load()
_ENTITY, _RC, _PTR, _I64, _U64, _U32 = ct.c_int32, ct.c_int32, ct.c_void_p, ct.c_int64, ct.c_uint64, ct.c_uint32


def _c(name: str, result: Any, *arguments: Any) -> Any:
    return declare(_LIBRARY, name, result, *arguments)


create_domain = _c("dds_create_domain", _ENTITY, _U32, ct.c_char_p)
create_participant = _c("dds_create_participant", _ENTITY, _U32, _PTR, _PTR)
create_topic = _c("dds_create_topic", _ENTITY, _ENTITY, ct.POINTER(Descriptor), ct.c_char_p, _PTR, _PTR)
create_publisher = _c("dds_create_publisher", _ENTITY, _ENTITY, _PTR, _PTR)
create_subscriber = _c("dds_create_subscriber", _ENTITY, _ENTITY, _PTR, _PTR)
create_writer = _c("dds_create_writer", _ENTITY, _ENTITY, _ENTITY, _PTR, _PTR)
create_reader = _c("dds_create_reader", _ENTITY, _ENTITY, _ENTITY, _PTR, _PTR)
create_readcondition = _c("dds_create_readcondition", _ENTITY, _ENTITY, _U32)
create_guardcondition = _c("dds_create_guardcondition", _ENTITY, _ENTITY)
set_guardcondition = _c("dds_set_guardcondition", _RC, _ENTITY, ct.c_bool)
take_guardcondition = _c("dds_take_guardcondition", _RC, _ENTITY, ct.POINTER(ct.c_bool))
create_waitset = _c("dds_create_waitset", _ENTITY, _ENTITY)
waitset_attach = _c("dds_waitset_attach", _RC, _ENTITY, _ENTITY, ct.c_ssize_t)
waitset_detach = _c("dds_waitset_detach", _RC, _ENTITY, _ENTITY)
waitset_wait = _c("dds_waitset_wait", _RC, _ENTITY, ct.POINTER(ct.c_ssize_t), ct.c_size_t, _I64)
delete = _c("dds_delete", _RC, _ENTITY)
get_guid = _c("dds_get_guid", _RC, _ENTITY, _PTR)
get_instance_handle = _c("dds_get_instance_handle", _RC, _ENTITY, ct.POINTER(_U64))
set_status_mask = _c("dds_set_status_mask", _RC, _ENTITY, _U32)
strretcode = _c("dds_strretcode", ct.c_char_p, _RC)
get_log_mask = _c("dds_get_log_mask", _U32)
set_log_mask = _c("dds_set_log_mask", None, _U32)
TIMED_OUT = -10  # DDS_RETCODE_TIMEOUT
wait_for_acks = _c("dds_wait_for_acks", _RC, _ENTITY, _I64)
assert_liveliness = _c("dds_assert_liveliness", _RC, _ENTITY)
get_matched_publications = _c("dds_get_matched_publications", _RC, _ENTITY, ct.POINTER(_U64), ct.c_size_t)
get_matched_subscriptions = _c("dds_get_matched_subscriptions", _RC, _ENTITY, ct.POINTER(_U64), ct.c_size_t)
get_matched_publication_data = _c("dds_get_matched_publication_data", ct.POINTER(Endpoint), _ENTITY, _U64)
get_matched_subscription_data = _c("dds_get_matched_subscription_data", ct.POINTER(Endpoint), _ENTITY, _U64)
free_endpoint = _c("dds_builtintopic_free_endpoint", None, ct.POINTER(Endpoint))
free = _c("dds_free", None, _PTR)
read_mask = _c("dds_read_mask", _RC, _ENTITY, ct.POINTER(_PTR), ct.POINTER(SampleInfo), ct.c_size_t, _U32, _U32)
take_mask = _c("dds_take_mask", _RC, _ENTITY, ct.POINTER(_PTR), ct.POINTER(SampleInfo), ct.c_size_t, _U32, _U32)
return_loan = _c("dds_return_loan", _RC, _ENTITY, ct.POINTER(_PTR), _RC)
get_entity_sertype = _c("dds_get_entity_sertype", _RC, _ENTITY, ct.POINTER(_PTR))
serdata_from_iov = _c("ddsi_serdata_from_ser_iov", _PTR, _PTR, ct.c_int, ct.c_size_t, ct.POINTER(Iov), ct.c_size_t)
serdata_size = _c("ddsi_serdata_size", _U32, _PTR)
serdata_to_ref = _c("ddsi_serdata_to_ser_ref", _PTR, _PTR, ct.c_size_t, ct.c_size_t, ct.POINTER(Iov))
serdata_unref = _c("ddsi_serdata_unref", None, _PTR)
writecdr = _c("dds_writecdr", _RC, _ENTITY, _PTR)
takecdr = _c("dds_takecdr", _RC, _ENTITY, ct.POINTER(_PTR), _U32, ct.POINTER(SampleInfo), _U32)

create_statistics = _c("dds_create_statistics", _PTR, _ENTITY)
refresh_statistics = _c("dds_refresh_statistics", _RC, _PTR)
lookup_statistic = _c("dds_lookup_statistic", ct.POINTER(Statistic), _PTR, ct.c_char_p)
delete_statistics = _c("dds_delete_statistics", None, _PTR)

create_qos = _c("dds_create_qos", _PTR)
delete_qos = _c("dds_delete_qos", None, _PTR)
qset_history = _c("dds_qset_history", None, _PTR, ct.c_int, ct.c_int32)
qset_reliability = _c("dds_qset_reliability", None, _PTR, ct.c_int, _I64)
qset_durability = _c("dds_qset_durability", None, _PTR, ct.c_int)
qset_durability_service = _c(
    "dds_qset_durability_service", None, _PTR, _I64, ct.c_int, ct.c_int32, ct.c_int32, ct.c_int32, ct.c_int32
)  # fmt: skip
qset_deadline = _c("dds_qset_deadline", None, _PTR, _I64)
qset_lifespan = _c("dds_qset_lifespan", None, _PTR, _I64)
qset_liveliness = _c("dds_qset_liveliness", None, _PTR, ct.c_int, _I64)
qset_writer_data_lifecycle = _c("dds_qset_writer_data_lifecycle", None, _PTR, ct.c_bool)
qset_data_representation = _c("dds_qset_data_representation", None, _PTR, _U32, ct.POINTER(ct.c_int16))
qset_ignorelocal = _c("dds_qset_ignorelocal", None, _PTR, ct.c_int)
qset_userdata = _c("dds_qset_userdata", None, _PTR, ct.c_char_p, ct.c_size_t)
qget_userdata = _c("dds_qget_userdata", ct.c_bool, _PTR, ct.POINTER(_PTR), ct.POINTER(ct.c_size_t))
qget_reliability = _c("dds_qget_reliability", ct.c_bool, _PTR, ct.POINTER(ct.c_int), ct.POINTER(_I64))
qget_durability = _c("dds_qget_durability", ct.c_bool, _PTR, ct.POINTER(ct.c_int))


def status_reader(status: str) -> Any:
    """The call that reads and resets one status of an endpoint, 'sample_lost' for example."""
    return _c(f"dds_get_{status}_status", _RC, _ENTITY, _PTR)


@contextmanager
def errors_unprinted() -> Iterator[None]:
    """libddsc's lines on standard error leave out errors inside; warnings are printed, and a fatal error as well."""
    mask = get_log_mask()
    set_log_mask(mask & ~LOG_ERROR)
    try:
        yield
    finally:
        set_log_mask(mask)


def check(code: int, what: str) -> int:
    """Returns `code`. Raises DdsError, naming `what` and libddsc's reason, if it is negative."""
    if code < 0:
        raise DdsError(f"{what}: {strretcode(code).decode()} ({code})")
    return code


def user_data_of(qos: int) -> bytes:
    """The user data in a dds_qos_t, empty if there is none."""
    value, size = ct.c_void_p(), ct.c_size_t()
    if not qget_userdata(qos, ct.byref(value), ct.byref(size)) or not value.value:
        return b""
    data = ct.string_at(value.value, size.value)
    free(value)
    return data

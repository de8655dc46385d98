"""A participant on any libddsc, with a configuration of its own: says when it is matched and when it hears.

It writes and reads std_msgs/String with nothing of our layer, so that the library may be an older one than ours.
Arguments: path of libddsc, domain, configuration, topic to write, topic to read.
"""

from __future__ import annotations

import ctypes as ct
import sys
import time

POINTER = ct.c_void_p
STRING_OPS = (ct.c_uint32 * 2)(0x01050000, 0)  # one string at offset 0; the descriptor says how many words
RELIABLE = 1


class Descriptor(ct.Structure):
    """dds_topic_descriptor_t, the same from 0.10 to 11.0.1."""

    _fields_ = [
        ("size", ct.c_uint32), ("align", ct.c_uint32), ("flagset", ct.c_uint32), ("nkeys", ct.c_uint32),
        ("typename", ct.c_char_p), ("keys", POINTER), ("nops", ct.c_uint32), ("ops", ct.POINTER(ct.c_uint32)),
        ("meta", ct.c_char_p), ("information", POINTER), ("information_size", ct.c_uint32),
        ("mapping", POINTER), ("mapping_size", ct.c_uint32), ("representations", ct.c_uint32),
    ]  # fmt: skip


class Sample(ct.Structure):
    """std_msgs/String."""

    _fields_ = [("data", ct.c_char_p)]


def main(path: str, domain: str, configuration: str, write: str, read: str) -> None:
    library = ct.CDLL(path)
    library.dds_create_qos.restype = POINTER
    library.dds_qset_reliability.argtypes = [POINTER, ct.c_int, ct.c_int64]
    library.dds_create_topic.argtypes = [ct.c_int32, POINTER, ct.c_char_p, POINTER, POINTER]
    library.dds_create_writer.argtypes = library.dds_create_reader.argtypes = [ct.c_int32, ct.c_int32, POINTER, POINTER]
    library.dds_take.argtypes = [ct.c_int32, POINTER, POINTER, ct.c_size_t, ct.c_uint32]
    qos = library.dds_create_qos()
    library.dds_qset_reliability(qos, RELIABLE, 10**8)
    began_s = time.monotonic()
    if library.dds_create_domain(int(domain), configuration.encode()) < 0:
        sys.exit("no domain")
    participant = library.dds_create_participant(int(domain), None, None)
    descriptor = Descriptor(
        size=8, align=8, typename=b"std_msgs::msg::dds_::String_", nops=len(STRING_OPS), ops=STRING_OPS, meta=b""
    )
    topics = [
        library.dds_create_topic(participant, ct.byref(descriptor), f"rt/{name}".encode(), None, None)
        for name in (write, read)
    ]
    writer = library.dds_create_writer(participant, topics[0], qos, None)
    reader = library.dds_create_reader(participant, topics[1], qos, None)
    if min(participant, *topics, writer, reader) < 0:
        sys.exit("no endpoints")
    print("ready", flush=True)
    matched = heard = False
    while True:
        library.dds_write(writer, ct.byref(Sample(b"from another Cyclone")))
        handles = (ct.c_uint64 * 8)()
        sees_both = (
            library.dds_get_matched_subscriptions(writer, handles, 8) > 0
            and library.dds_get_matched_publications(reader, handles, 8) > 0
        )
        if sees_both and not matched:
            matched = True
            print(f"matched {time.monotonic() - began_s:.2f}", flush=True)
        loan, info = POINTER(), (ct.c_uint8 * 256)()
        taken = library.dds_take(reader, ct.byref(loan), ct.byref(info), 1, 1)
        if taken > 0:
            library.dds_return_loan(reader, ct.byref(loan), taken)
            if not heard:
                heard = True
                print("heard", flush=True)
        time.sleep(0.02)


main(*sys.argv[1:])

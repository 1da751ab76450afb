"""Leaves word for the next step where no digest looks."""

import json
import os
import struct


def step(config, inputs, out):
    (out / "deep").mkdir(mode=0o700)
    for name in ("first.txt", "deep/second.txt"):
        (out / name).write_text("x")
    globals()[config["how"]](out)


def times(out):
    for number, path in enumerate(("first.txt", "deep/second.txt", "deep", "")):
        os.utime(out / path, ns=(number * 10**9, 123456789 + number))


def modes(out):
    (out / "first.txt").chmod(0o777)
    (out / "deep" / "second.txt").chmod(0o600)
    (out / "deep").chmod(0o1755)
    out.chmod(0o2711)


def links(out):
    os.link(out / "first.txt", out / "deep" / "third.txt")


def attribute(out):
    os.setxattr(out / "deep" / "second.txt", "user.word", b"x")


def attribute_of_a_folder(out):
    os.setxattr(out / "deep", "user.word", b"x")


def attribute_of_all(out):
    os.setxattr(out, "user.word", b"x")


def access_list(out):
    user, mask = (0x02, 4, os.getuid()), (0x10, 4, 0xFFFFFFFF)
    entries = [(1, 6, 0xFFFFFFFF), user, (4, 4, 0xFFFFFFFF), mask, (32, 4, 0xFFFFFFFF)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)
    os.setxattr(out / "first.txt", "system.posix_acl_access", packed)


def empty(out):
    (out / "deep" / "er").mkdir()


def reads(config, inputs, out):
    root = inputs["before"]
    told = {}
    for path in [root, *sorted(root.rglob("*"))]:
        found = path.lstat()
        name = str(path.relative_to(root))
        told[name] = [oct(found.st_mode), found.st_mtime_ns, *os.listxattr(path)]
        told[name] += [found.st_nlink] if path.is_file() else []
    (out / "told.json").write_text(json.dumps(told, sort_keys=True))

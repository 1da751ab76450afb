"""A network that joins the boxes of a gang, and nothing else. Each box is in a network namespace of
its own, whose only ways are its loopback and a TUN device: what is sent there reaches this process
as IP packets, which it carries to the other hosts over TCP connections. So code in the boxes can
talk to the boxes of its gang alone, by any protocol, and needs no rights and no address on the
cluster's network. `python -m runner.isolation.gang_network RANK SOCKET` holds such a namespace.

A connection between two hosts begins with a proof that both know the gang's secret, which the lab
drew for it. What it carries is not encrypted, as a gang's collectives are not.

Needs Linux's user namespaces, as bubblewrap does, and /dev/net/tun.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import hmac
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.isolation.bubblewrap import LAB, CannotIsolate

CLONE_NEWUSER, CLONE_NEWNET = 0x1000_0000, 0x4000_0000  # from Linux's sched.h
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x4004_54CA, 0x1, 0x1000  # from Linux's if_tun.h
SET_ADDRESS, SET_MASK, SET_MTU, SET_FLAGS = 0x8916, 0x891C, 0x8922, 0x8914  # from sockios.h
UP_AND_RUNNING = 0x1 | 0x40
DEVICE, MASK, MTU = b"gang", "255.255.0.0", 65_520  # bytes; large, because each packet costs
SOURCE, TARGET = slice(12, 16), slice(16, 20)  # of the addresses in an IPv4 packet
PORT = 7000  # of JAX's coordinator, in the namespace of rank 0
MEET_WITHIN = 120.0  # seconds for all hosts to be connected
PROOF = 32  # bytes
MOST_WORDS = 500  # bytes


def address(rank: int) -> str:
    """The address of a rank's box."""
    return f"10.77.{(rank + 1) >> 8}.{(rank + 1) & 255}"


@dataclass(frozen=True)
class Network:
    """A box's end of it. `enter` in a child before it becomes the box."""

    holder: int  # a process in the namespaces
    hosts: Path  # a file in the form of /etc/hosts, by which the box finds its own name

    def shown(self) -> list[str]:
        """The arguments of bubblewrap for a box that is started in this network."""
        return ["--share-net", "--ro-bind", str(self.hosts), "/etc/hosts"]

    def enter(self) -> None:
        """Move this process, which has one thread, into the box's network."""
        for kind, flag in (("user", CLONE_NEWUSER), ("net", CLONE_NEWNET)):
            with open(f"/proc/{self.holder}/ns/{kind}", "rb") as file:  # noqa: PTH123  in a child
                _call("setns", file.fileno(), flag)


@contextlib.contextmanager
def joined(
    rank: int, listening: socket.socket, addresses: Sequence[str], secret: bytes, folder: Path
) -> Iterator[Network]:
    """The network of the box of `rank` during the `with` body. `listening` is where the other hosts
    reach this process; `addresses` (host:port) are those of all ranks. Writes a file to `folder`.
    Raises CannotIsolate."""
    links = _linked(rank, listening, addresses, secret)
    holder, tun = _holder(rank)
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{address(rank)} isolated\n")
    threads = [threading.Thread(target=_send, args=(tun, links), daemon=True)]
    for peer, link in links.items():
        threads.append(threading.Thread(target=_receive, args=(link, peer, tun), daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield Network(holder.pid, hosts)
    finally:
        for link in links.values():
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        holder.kill()  # the device ends with its namespace, and so do its readers
        holder.wait()


# ── The namespace ────────────────────────────────────────────────────────────────────────────


def _holder(rank: int) -> tuple["subprocess.Popen[bytes]", int]:
    """A process that holds a new network namespace, and its TUN device as an open file."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-m", "runner.isolation.gang_network"]
        process = subprocess.Popen(
            [*command, str(rank), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.PIPE,  # at whose end it ends
            cwd=LAB,
        )
        theirs.close()
        said, files, _, _ = socket.recv_fds(ours, MOST_WORDS, 1)
    if files:
        return process, files[0]
    process.wait()
    raise CannotIsolate(
        "own code on several hosts needs a network of its own, and this machine gives none "
        f"({said.decode(errors='replace') or 'it does not say why'}). Allow user namespaces, and "
        "let this user write /dev/net/tun (for a container: --device /dev/net/tun)."
    )


def hold(rank: int, out: socket.socket) -> None:
    """Make a network namespace for a rank's box, send its TUN device to `out`, and keep it until
    nobody holds our standard input open."""
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        for name, number in (("uid_map", user), ("gid_map", group)):
            Path("/proc/self", name).write_text(f"0 {number} 1")
        tun = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", DEVICE, IFF_TUN | IFF_NO_PI))
        _bring_up(rank)
    except OSError as error:
        out.sendall(str(error).encode()[:MOST_WORDS])
        return
    socket.send_fds(out, [b"+"], [tun])
    os.close(tun)
    out.close()
    sys.stdin.buffer.read()


def _bring_up(rank: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:

        def set_(request: int, form: str, name: bytes, *values: object) -> None:
            fcntl.ioctl(any_socket, request, struct.pack(form, name, *values))

        for request, where in ((SET_ADDRESS, address(rank)), (SET_MASK, MASK)):
            set_(request, "16sH2x4s8x", DEVICE, socket.AF_INET, socket.inet_aton(where))
        set_(SET_MTU, "16si12x", DEVICE, MTU)
        for name in (DEVICE, b"lo"):
            set_(SET_FLAGS, "16sH14x", name, UP_AND_RUNNING)


def _call(name: str, *args: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


# ── The connections ──────────────────────────────────────────────────────────────────────────


def _linked(
    rank: int, listening: socket.socket, addresses: Sequence[str], secret: bytes
) -> dict[int, socket.socket]:
    """A connection to each other rank; the higher one of two begins it. Raises CannotIsolate."""
    links: dict[int, socket.socket] = {}
    try:
        for peer in range(rank):
            host, _, port = addresses[peer].rpartition(":")
            link = socket.create_connection((host, int(port)), MEET_WITHIN)
            link.sendall(struct.pack("!I", rank))
            _prove(link, secret, rank, peer)
            links[peer] = link
        listening.settimeout(MEET_WITHIN)
        while len(links) < len(addresses) - 1:
            link, _ = listening.accept()
            link.settimeout(MEET_WITHIN)
            with contextlib.suppress(OSError):  # a stranger; the others are waited for
                (peer,) = struct.unpack("!I", _exactly(link, 4))
                if rank < peer < len(addresses):  # before the proof, so that nobody relays ours
                    _prove(link, secret, rank, peer)
                    links[peer] = link
    except OSError as error:
        raise CannotIsolate(f"the hosts of the gang did not reach each other ({error})") from error
    for link in links.values():
        link.settimeout(None)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return links


def _prove(link: socket.socket, secret: bytes, me: int, peer: int) -> None:
    """Each side proves that it knows the secret. Raises PermissionError."""
    mine = secrets.token_bytes(PROOF)
    link.sendall(mine)
    theirs = _exactly(link, PROOF)

    def proof(asked: bytes, by: int, to: int) -> bytes:
        return hmac.digest(secret, asked + struct.pack("!II", by, to), hashlib.sha256)

    link.sendall(proof(theirs, me, peer))
    if not hmac.compare_digest(_exactly(link, PROOF), proof(mine, peer, me)):
        link.close()
        raise PermissionError("a stranger")


def _exactly(link: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := link.recv(size - len(found))):
            raise PermissionError("it ended")
        found += more
    return found


def _send(tun: int, links: dict[int, socket.socket]) -> None:
    """Carry the packets of the box to the rank that each is for; others go nowhere."""
    of = {socket.inet_aton(address(peer)): link for peer, link in links.items()}
    with os.fdopen(tun, "rb", buffering=0) as device, contextlib.suppress(OSError):
        while packet := device.read(1 << 16):
            if link := of.get(packet[TARGET]):
                with contextlib.suppress(OSError):  # that host is gone
                    link.sendall(struct.pack("!H", len(packet)) + packet)


def _receive(link: socket.socket, peer: int, tun: int) -> None:
    """Give the box the packets that a peer's box has sent from its own address."""
    source = socket.inet_aton(address(peer))
    with contextlib.suppress(OSError, PermissionError):
        while True:
            (size,) = struct.unpack("!H", _exactly(link, 2))
            packet = _exactly(link, size)
            if packet[SOURCE] == source:
                os.write(tun, packet)


if __name__ == "__main__":
    hold(int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))

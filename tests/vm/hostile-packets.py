"""Packets that no initiator or target would send, for hostile-packets.sh.

hostile-packets.py ADDR PORT ACTION ARG... sends them by an ordinary UDP socket and
prints what came back. The layouts are those of core/src/dc/wire.rs and core/src/mr.
"""
import os
import random
import socket
import struct
import sys
import time

READ, SEND, RESPONSE = 1, 6, 16
OK, ACCESS, BUSY = 0, 10, 203
# /sys of the machine: in a network namespace the one here is the namespace's own.
COUNTERS = "/proc/1/root/sys/kernel/debug/weft/counters"


def request(kind, stream, token, psn, target, remote_addr=0, length=0, rkey=0):
    number, key, incarnation = target
    start = struct.pack("!HBBIQI", 0x5744, 2, kind, stream, token, psn)
    return start + struct.pack("!IQIIQII", number, key, incarnation, 1, remote_addr, rkey, length)


def response(stream):
    start = struct.pack("!HBBIQI", 0x5744, 2, RESPONSE, stream, random.getrandbits(64), 0)
    return start + bytes(12)


def control_message(target, text):
    """A SEND to the node itself, from a sender that it says is another."""
    message = struct.pack("!IIIIIQI", len(text), 0, 4, 0, 1, 2, 3)
    head = request(SEND, 1, random.getrandbits(64), 0, target, 0, len(text))
    return head + message + text


def gone_notice():
    head = b"WFTk" + bytes([1, 1, 0, 0]) + os.urandom(8) + struct.pack("<Q", 1)
    return head.ljust(80, b"\0")


def answers(sock, patience=0.0):
    """Status and length of each response that has come back."""
    statuses = []
    sock.settimeout(patience) if patience else sock.setblocking(False)
    try:
        while True:
            packet = sock.recv(65536)
            if packet[3] == RESPONSE:
                statuses.append((packet[20], len(packet)))
    except (BlockingIOError, TimeoutError):
        return statuses


def counter(name):
    with open(COUNTERS, encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.split()[0] == name)


def take_all_contexts(to, target, addresses):
    """Opens contexts, equally many from each address, until there are no more. So none of
    the addresses has reached its own limit. Then a context that there is is asked for
    again and again. Prints how many searches for idle contexts that has made, and how
    many of its answers were good; if contexts went faster than they came, `too-slow` and
    how many there are."""
    socks = []
    for address in addresses:
        socks.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        socks[-1].bind((address, 0))
        socks[-1].connect(to)
    first = request(READ, 1, random.getrandbits(64), 0, target)
    socks[0].send(first)
    end, heard = time.monotonic() + 9, answers(socks[0], 1.0)
    while (BUSY, 32) not in heard and time.monotonic() < end:
        for sock in socks:
            for _ in range(100):
                sock.send(request(READ, 2, random.getrandbits(64), 0, target))
        heard = [answer for sock in socks for answer in answers(sock)]
    if (BUSY, 32) not in heard:
        print("too-slow", counter("contexts"))
        return
    before, good = counter("context_searches"), 0
    for _ in range(1000):
        socks[0].send(first)
        good += answers(socks[0]).count((OK, 32))
    good += answers(socks[0], 0.5).count((OK, 32))
    searches = counter("context_searches") - before
    # Are all of them still taken? An address that is not refused too often may ask.
    time.sleep(0.1)
    socks[1].send(request(READ, 3, random.getrandbits(64), 0, target))
    if (BUSY, 32) in answers(socks[1], 0.5):
        print(searches, good)
    else:
        print("too-slow", counter("contexts"))


def main():
    to = (sys.argv[1], int(sys.argv[2]))
    action = sys.argv[3]
    arguments = [int(word) for word in sys.argv[4:] if word.isdigit()]
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect(to)
    begin, heard = time.monotonic(), []
    if action == "strangers":
        for stream in range(arguments[0]):
            nobody = (1, random.getrandbits(64), 1)
            sock.send(request(READ, stream, random.getrandbits(64), 0, nobody))
            heard += answers(sock)
        heard += answers(sock, 0.5)
        # The answers that come, and the answers that may: a burst, and 100 a second.
        allowed = 64 + 100 * (time.monotonic() - begin + 1)
        print(len(heard), int(allowed))
    elif action == "responses":
        for stream in range(arguments[0]):
            sock.send(response(stream % 64))
        print(len(answers(sock, 0.5)))
    elif action in ("contexts", "one-stream"):
        target, count = arguments[:3], arguments[3]
        for number in range(count):
            stream = number if action == "contexts" else 1
            sock.send(request(READ, stream, random.getrandbits(64), 0, target))
            heard += answers(sock)
        heard += answers(sock, 0.5)
        print(sum(1 for status, _ in heard if status == OK))
    elif action == "notice":
        sock.send(control_message(arguments[:3], gone_notice()))
        print(*(status for status, _ in answers(sock, 1.0)))
    elif action == "repeat":
        # A READ of no bytes; then the same PSN with other lengths.
        target, token = arguments[:3], random.getrandbits(64)
        for length in (0, 4097, 1 << 20, (1 << 32) - 1):
            sock.send(request(READ, 1, token, 0, target, 0, length))
        print(len(answers(sock, 1.0)))
    elif action == "guesses":
        # A READ of no bytes; then the same PSN with keys that are guessed.
        target, token = arguments[:3], random.getrandbits(64)
        sock.send(request(READ, 1, token, 0, target))
        for _ in range(100):
            sock.send(request(READ, 1, token, 0, target, 4096, 8, random.getrandbits(32)))
        print(sum(1 for status, _ in answers(sock, 1.0) if status == ACCESS))
    elif action == "all-contexts":
        take_all_contexts(to, arguments[:3], sys.argv[7:])
    else:
        sys.exit(f"unknown action {action}")


main()

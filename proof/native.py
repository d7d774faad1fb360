"""A client of the native protocol, written from docs/formats/native.md, command.md and answer.md alone.

Run it against a member's client port: python3 proof/native.py HOST:PORT [--ca FILE]
It prints a line for each thing that it checked and `ok`, or what failed, with exit code 1."""
import argparse, functools, os, socket, ssl, struct, sys, time
from collections import namedtuple

HELLO, WELCOME, ANSWER, OPEN, WRITE, KEEP_ALIVE, CLOSE, READ, PING, SESSIONS, EXPEL = 1, 2, 3, *range(16, 24)
LINEARIZABLE, AT_LEAST, BOUNDED, SERIALIZABLE = range(4)
VERSION, CREATE, MOD, VALUE, LEASE = range(5)
Welcome = namedtuple("Welcome", "version cluster member leader url frame answers under_way")
Answer = namedtuple("Answer", "index strong outcome value")
Response = namedtuple("Response", "revision kind numbers parts")
Pair = namedtuple("Pair", "key create mod version lease value")
TABLE = list(range(256))
for _ in range(8):
    TABLE = [c >> 1 ^ (0x82F63B78 if c & 1 else 0) for c in TABLE]

class Failure(Exception): "What a request failed with; its arguments are the fields of the outcome."
class StoreError(Failure): "The number of an error of the store."
class SessionError(Failure): "The error of a session, and the number expected."
class Refused(Failure): "Certainly without effect: reason, leader, URL."
class Unknown(Failure): "It may have had an effect: reason, leader, URL."
class Malformed(Failure): "The member could not read the request, or it may not be made so."

def crc32c(data, ones=0xFFFFFFFF):
    "CRC32C (Castagnoli) of bytes."
    return functools.reduce(lambda crc, byte: TABLE[(crc ^ byte) & 255] ^ crc >> 8, data, ones) ^ ones
def number(n): "Shortest form."; return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + number(n >> 7)
def pack(form, *values):
    "Fields, a letter each: n number, s signed, b bytes, r bytes without a length; others as in struct."
    by = {"n": number, "s": lambda n: number(n << 1 ^ n >> 63), "b": lambda r: number(len(r)) + r, "r": bytes}
    return b"".join(by[letter](value) if letter in by else struct.pack("<" + letter, value)
                    for letter, value in zip(form, values, strict=True))
def take(data, size):
    "Takes bytes off the front of a bytearray."
    taken, data[:size] = bytes(data[:size]), b""
    assert len(taken) == size, "what the member sent ends too early"
    return taken
def unpack(form, data):
    "Takes a field off a bytearray, by the letters of pack, t text; a list for many letters."
    if len(form) != 1:
        return [unpack(letter, data) for letter in form]
    if form in "bt":
        return take(data, unpack("n", data)) if form == "b" else take(data, unpack("H", data)).decode()
    if form not in "ns":
        return struct.unpack("<" + form, take(data, struct.calcsize("<" + form)))[0]
    value, shift, byte = 0, 0, 128
    while byte > 127:
        byte, = take(data, 1)
        value, shift = value | (byte & 127) << shift, shift + 7
    assert value < 1 << 64 and (byte or shift == 7), "a number in a wrong form"
    return value if form == "n" else value >> 1 ^ -(value & 1)
def result(data, depth=1):
    "The answer of an operation: kind, numbers, and parts, which are pairs, or answers like itself."
    kind = unpack("B", data)
    assert 1 <= kind <= 5 and depth <= 32, f"an answer of kind {kind} at depth {depth}"
    *numbers, count = [unpack(letter, data) for letter in ("?", "ssn", "?n", "", "?ssn")[kind - 1]] or [0]
    one = (lambda: result(data, depth + 1)) if kind == 3 else lambda: Pair(*unpack("bssssb", data))
    return kind, numbers, [one() for _ in range(count)]
def answer_of(data):
    "A whole answer; its value is a Failure where the request failed."
    index, strong, outcome = unpack("QQB", data)
    value, failures = None, [(SessionError, "BQ"), (Refused, "BQt"), (Unknown, "BQt"), (Malformed, "")]
    if outcome == 0 and data:
        error = unpack("B", data)
        value = StoreError(error) if error else Response(unpack("s", data), *result(data))
    elif outcome in (2, 3, 8):
        value = unpack("Q", data), [unpack("Q", data) for _ in range(len(data) // 8)]
    elif outcome > 1:
        kind, form = failures[outcome - 4]
        value = kind(*unpack(form, data))
    assert not data, f"bytes behind the last field of an answer with outcome {outcome}"
    return Answer(index, strong, outcome, value)

def put(key, value=b"", flags=0, *lease):
    "A put; like all commands and queries here, with the version in its first byte."
    return pack("BBbb" + "s" * len(lease), 0x11, flags, key, value, *lease)
def delete_range(key, end=b"", flags=0): "A removal of keys."; return pack("BBbb", 0x12, flags, key, end)
def transaction(compares, successes, failures=()):
    "A transaction of compares and commands or queries, whose versions it takes off."
    parts = [*compares, *(pack("Br", made[0] & 15, made[1:]) for made in (*successes, *failures))]
    return pack("Bnnnr", 0x13, len(compares), len(successes), len(failures), b"".join(parts))
def compare(target, operator, key, operand, end=b""):
    "A compare; its operand is bytes for a value."
    return pack("Bbb" + ("b" if target == VALUE else "s"), target << 4 | operator, key, end, operand)
def compact(revision): "A compaction, which no transaction may have."; return pack("Bs", 0x14, revision)
def range_of(key, end=b"", flags=0, sort=0, *bounds):
    "A query of keys; `sort` is target and order, the bounds are the numbers that the flags announce."
    return pack("BBBbb" + "s" * len(bounds), 0x15, flags, sort, key, end, *bounds)
def message(kind, name, data, flag=0): "Message."; return pack("IBBHQr", len(data), kind, flag, 0, name, data)
def frame(messages):
    "A frame of messages."
    return pack("IIr", len(messages), crc32c(pack("Ir", len(messages), messages)), messages)

class Client:
    "A connection. Requests that are sent before one waits go in one frame."
    def __init__(self, host, port, tls=None, cluster=0, versions=(1, 1)):
        self.sock = socket.create_connection((host, port), 20)
        if tls:
            tls.set_alpn_protocols(["kattu"])
            self.sock = tls.wrap_socket(self.sock, server_hostname=host)
        self.file, self.welcome, self.name = self.sock.makefile("rb"), None, 0
        self.queued, self.under_way, self.answers = b"", {0: 1}, {}
        self.sock.sendall(b"KtNp" + frame(message(HELLO, 0, pack("HHQQ", *versions, cluster, 0))))
        self.until(lambda: 0 in self.answers)
        self.welcome = self.answers.pop(0)
        self.fits = self.welcome.version != 0 and cluster in (0, self.welcome.cluster)
    def send(self, kind, form="", *values, flags=0):
        "Queues a request, by its fields behind the principal, and returns its name."
        sent = message(kind, self.name + 1, b"\0" + pack(form, *values), flags)
        assert self.fits and len(sent) <= self.welcome.frame, f"{len(sent)} bytes cannot go to {self.welcome}"
        self.until(lambda: len(self.queued + sent) <= self.welcome.frame
                   and len(self.under_way) < self.welcome.under_way and sum(self.under_way.values()) < 65536)
        self.name += 1
        self.queued, self.under_way[self.name] = self.queued + sent, len(sent)
        return self.name
    def write(self, command, flags=0): "A command."; return self.send(WRITE, "Br", 0, command, flags=flags)
    def read(self, query, level=0, bound=0): "A query."; return self.send(READ, "BQr", level, bound, query)
    def wait(self, name, *expected):
        "The answer under this name, others being kept; raises a failure that is not of an expected kind."
        self.until(lambda: name in self.answers)
        answer = self.answers.pop(name)
        if isinstance(answer.value, Failure) and not isinstance(answer.value, expected):
            raise answer.value
        return answer
    def until(self, there):
        "Sends what is queued as one frame, and reads frames, until something is there."
        while not there():
            if self.queued:
                self.sock.sendall(frame(self.queued))
                self.queued = b""
                continue
            head = self.file.read(8)
            assert len(head) == 8, "the member closed the connection"
            length, crc = struct.unpack("<II", head)
            assert length <= (self.welcome.answers if self.welcome else 65536), f"a frame of {length} bytes"
            data = bytearray(self.file.read(length))
            assert crc32c(head[:4] + data) == crc, "a frame that is cut off or whose checksum does not fit"
            while data:
                size, *form, name = unpack("IBBHQ", data)
                assert self.under_way.pop(name, 0), f"an answer to {name}, which is not under way"
                assert form == [ANSWER if name else WELCOME, 0, 0], f"a message of kind, flags {form}"
                fields = bytearray(take(data, size))
                self.answers[name] = answer_of(fields) if name else Welcome(*unpack("HQQQtIII", fields))

class Session:
    "A session. Its commands are numbered from 1, and kept to be repeated."
    def __init__(self, client, order=0):
        self.client, self.last, self.first_unacked, self.unacked = client, 0, 1, set()
        self.sent, self.under_way = {}, {}
        self.idle, (self.id, self.secret) = client.wait(client.send(OPEN, "B", order)).value
    def within(self, number, command, wrong=0):
        "The fields of a write of a command under a number."
        gap, secret = max(0, number - self.first_unacked), self.secret ^ wrong
        return pack("BBnnQnnBr", 8, 2, 0, self.id, secret, number, gap, 0, command)
    def submit(self, command, number=0):
        "Sends a command under the next number, or the one given, and returns the number."
        number = number or self.last + 1
        self.unacked.update(range(self.last + 1, number + 1))
        self.last, self.sent[number] = max(self.last, number), self.within(number, command)
        return self.again(number)
    def again(self, number, client=None):
        "Sends a command under its number, over a new connection where one is given, and returns the number."
        self.client = client or self.client
        self.under_way[number] = self.client, self.client.send(WRITE, "r", self.sent[number])
        return number
    def result(self, number):
        "Waits for the answer of a command, which is final also as an error of the store."
        client, name = self.under_way[number]
        answer = client.wait(name, StoreError)
        self.unacked.discard(number)
        self.first_unacked = min(self.unacked, default=self.last + 1)
        return answer
    def put(self, *fields): "A put."; return self.result(self.submit(put(*fields)))
    def delete(self, *fields): "A removal."; return self.result(self.submit(delete_range(*fields)))
    def txn(self, *fields): "A transaction."; return self.result(self.submit(transaction(*fields)))
    def keep_alive(self):
        "Says what has been answered; whether the session is still there."
        name = self.client.send(KEEP_ALIVE, "QQQ", self.id, self.secret, self.first_unacked)
        return not self.client.wait(name).value[1]
    def close(self):
        "Ends the session; whether it was there."
        return not self.client.wait(self.client.send(CLOSE, "QQ", self.id, self.secret)).value[1]

def check(what, got, expected=True):
    "Prints what is as expected, or fails."
    assert got == expected, f"{what}: came {got!r}, not {expected!r}"
    print(what, flush=True)
def ends(what, client, data=b""):
    "Checks that the member closes the connection, perhaps for these bytes, and sends nothing more."
    client.sock.sendall(data)
    check(f"{what}: the connection ends", client.file.read(), b"")
def check_samples():
    "Checks the samples of the pages."
    ping, read = frame(message(PING, 9, b"\0")), pack("BBQr", 0, AT_LEAST, 3, range_of(b"k"))
    made = [data.hex() for data in (ping, read, put(b"k", b"", 15, -2), delete_range(b"a", b"b", 1))]
    check("samples: a checksum, requests", (crc32c(b"123456789"), made), (0xE3069283, [
        "110000009effd3f00100000015000000090000000000000000", "00010300000000000000150000016b00",
        "110f016b0003", "120101610162"]))
    done = bytearray.fromhex("0400000000000000 0600000000000000 00 00040100")
    check("sample: an answer", answer_of(done), Answer(4, 6, 0, Response(2, 1, [], [])))
    for n in (0, -1, 63, -64, 64, -65, 2 ** 63 - 1, -2 ** 63):
        assert unpack("s", bytearray(pack("s", n))) == n, f"{n} is not read as it was written"
def check_connections(connect, key):
    "Checks hellos, and what ends a connection."
    true, c = connect().welcome, connect(versions=(60000, 60001))
    check("handshake: version 1; 0 where none is in common", (true.version, c.welcome.version), (1, 0))
    ends("no version in common", c)
    c = connect(cluster=true.cluster ^ 1 or 2)
    check("another cluster: the welcome names the true one", c.welcome.cluster, true.cluster)
    ends("another cluster", c)
    good, s = frame(message(WRITE, 1, b"\0\0" + put(key))), Session(connect())
    ends("wrong checksum", connect(), good[:4] + bytes([good[4] ^ 1]) + good[5:])
    ends("length too large", connect(), struct.pack("<II", true.frame + 1, 0))
    for what, flag, *fields in (("query that cannot be read", 0, READ, "BQB", 0, 0, 0x15),
                                 ("commit-only in a session", 1, WRITE, "r", s.within(1, put(key)))):
        c = connect()
        check(f"{what}: malformed", repr(c.wait(c.send(*fields, flags=flag), Malformed).value), "Malformed()")
        ends(what, c)
    parts = s.client.wait(s.client.read(range_of(key))).value.parts
    check("of these nothing was done, nor the number used up", (parts, s.put(key).value.kind), ([], 1))
    check("ping", s.client.wait(s.client.send(PING))[2:], (0, None))
def check_store(c, key):
    "Checks commands and queries outside of sessions."
    a, b, end = key + b"a", key + b"b", key + b"\xff"
    do, get = lambda made: c.wait(c.write(made)).value, lambda *query: c.wait(c.read(range_of(*query))).value
    one, two, three = do(put(a, b"1")).revision, do(put(a, b"2", 1)), do(put(b, b"3"))
    old, new = Pair(a, one, one, 1, 0, b"1"), Pair(a, one, two.revision, 2, 0, b"2")
    check("put, get", (two.parts, get(a).parts, get(a, b"", 8, 0, one).parts), ([old], [new], [old]))
    found, gone = get(key, end, 4, 2, 1), do(delete_range(key, end, 1))
    check("range with a limit, descending", (found.numbers[:2], found.parts[0].value), ([1, 2], b"3"))
    check("delete range", (gone.numbers[0], gone.parts[0], get(a).parts), (2, new, []))
    inner, absent = transaction([], [put(b, b"5")]), compare(VERSION, 0, a, 0)
    txn = transaction([absent], [put(a, b"4"), inner, range_of(a)], [delete_range(key, end)])
    yes, seen = do(txn), c.wait(c.read(transaction([compare(VALUE, 0, b, b"5")], [range_of(a)]))).value
    no, read = do(txn), Pair(a, yes.revision, yes.revision, 1, 0, b"4")
    check("transaction that succeeds", (yes.numbers, yes.parts[1][1], yes.parts[2][2]), ([1], [1], [read]))
    check("transactions: query, failure", (seen.parts[0][2], no.numbers, no.parts[0][1][0]), ([read], [0], 2))
    last = do(put(a, b"6")).revision
    check("compact", do(compact(last)).kind, 4)
    for name, error in ((c.write(compact(last)), 9), (c.write(compact(last + 10 ** 9)), 10),
                        (c.read(range_of(a, b"", 8, 0, 1)), 9), (c.write(transaction([], [put(a)] * 2)), 6)):
        check(f"error {error} of the store", repr(c.wait(name, StoreError).value), f"StoreError({error})")
    check("commit-only", (c.wait(c.write(put(a, b"7"), 1))[2:], get(a).parts[0].value), ((1, None), b"7"))
    index = c.wait(c.write(put(a, b"8"))).index
    time.sleep(0.3)
    for level, operand in enumerate((0, index, 200 * 10 ** 6, 0)):
        read = c.wait(c.read(range_of(a), level, operand))
        right = level == SERIALIZABLE or read.value.parts[0].value == b"8" and read.index >= index
        check(f"read at level {level}", (right, read.strong), (True, 0))
def check_session(connect, key):
    "Checks the commands of sessions, and requests about sessions."
    c, other, s, u, some = connect(), connect(), Session(connect()), Session(connect(), 1), (751, 900, 1000)
    version = lambda: c.wait(c.read(range_of(key))).value.parts[0].version
    before, answers = c.wait(c.write(put(key))) and version(), {}
    for _ in range(4):
        answers.update([(n, s.result(n)) for n in [s.submit(put(key, b"%d" % i, 1)) for i in range(250)]])
    check("1,000 puts in four frames: the version of the key", version() - before, 1000)
    check("each is executed when it is answered", all(answer.strong >= n for n, answer in answers.items()))
    again = [s.result(s.again(n, other)).value == answers[n].value for n in some]
    check("repeated: the same answers, the same version", (again, version() - before), ([True] * 3, 1000))
    strong = [u.result(u.submit(put(key), n)).strong for n in (3, 2, 1, 5, 4)]
    check("unordered session: strong moves when a gap closes", strong, [0, 0, 3, 3, 5])
    ghost, _ = [u.id ^ 1 << 62, 7], s.put(key)
    named = c.wait(c.send(KEEP_ALIVE, "QQQQQQ", s.id, s.secret, s.first_unacked, *ghost, 1)).value[1]
    check("keep alive names the session that is not there", (named, s.keep_alive()), (ghost, True))
    check("sessions", c.wait(c.send(SESSIONS, "QI", u.id, 10)).value[1][0], u.id)
    check("expel", (c.wait(c.send(EXPEL, "Q", u.id)).value[1], u.keep_alive()), ([], False))
    for what, error, fields in (("number too high: out of order", "(2, 1002)", s.within(1005, put(key))),
                                ("acknowledged number: stale", "(3, ", s.sent[1000]),
                                ("wrong secret: expired", "(1, ", s.within(1002, put(key), 1)),
                                ("expelled session: expired", "(1, ", u.within(6, put(key)))):
        came = repr(c.wait(c.send(WRITE, "r", fields), SessionError).value)
        check(what, came[:12 + len(error)], "SessionError" + error)
    txn = s.txn([compare(VERSION, 1, key, 0)], [range_of(key)]).value
    check("transaction, delete in a session", (txn.numbers, s.delete(key).value.numbers[0]), ([1], 1))
    check("close", (s.close(), s.keep_alive(), s.close()), (True, False, False))

def main():
    "Checks the member that the arguments name."
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--ca", metavar="FILE")
    options = parser.parse_args()
    host, port = options.address.rsplit(":", 1)
    connect = lambda **more: Client(host.strip("[]"), int(port), tls, **more)
    try:
        check_samples()
        tls, key = options.ca and ssl.create_default_context(cafile=options.ca), os.urandom(6).hex().encode()
        check_connections(connect, key + b"-connections")
        check_store(connect(), key + b"-store")
        check_session(connect, key + b"-session")
    except Exception as error:
        sys.exit(f"failed after what is above: {type(error).__name__}: {error}")
    print("ok")

if __name__ == "__main__":
    main()

"""A synthesizer that misbehaves as its params say."""

CODE = '''
import gc
import socket as sockets
import sys

from app.engine.grouping import Grouping
from app.engine.privacy.queries import SessionError
from app.engine.privacy.wire import Frame, pack

SECRET = "telltale"


class Remembering:
    """Looks like a grouping, and would remember what it is called with."""

    cells = 2

    def __init__(self):
        self.seen = []

    def __call__(self, rows):
        self.seen.append(rows)
        return rows


class Synthesizer(Base):
    name = "hostile"
    assurance = "enforced"

    def check(self, schema, unit, params, loss, public, limits):
        if params.do == "check_raises":
            raise ValueError(SECRET)
        if params.do == "check_hangs":
            time.sleep(600)
        return Preflight(1, 1, 1.0)

    def load(self, schema, unit, data):
        model = Model(schema, json.loads(data))
        if model.learned.get("spoil"):
            model.sample = lambda rows, rng: Table(
                {column.name: np.full(rows, 10**6) for column in schema.columns}, rows
            )
        return model

    def fit(self, session, params, public, seed, progress):
        learned = getattr(self, params.do)(session, params, progress)
        return Model(session.schema, learned or {})

    def behave(self, session, params, progress):
        return {"total": total(session, half(session))}

    def overspend(self, session, params, progress):
        """Asks for more than there is, again and again, and goes on after each refusal."""
        refusals, answers = 0, 0
        for _ in range(20):
            for loss in (session.allowance, half(session)):
                try:
                    total(session, loss)
                    answers += 1
                except (BudgetExhausted, QuestionRefused):
                    refusals += 1
        return {"refusals": refusals, "answers": answers}

    def kill_worker(self, session, params, progress):
        """Would run again until the first answer is to its liking."""
        answer = total(session, half(session))
        if not os.getppid():  # in a namespace of its own, no process outside has an id
            return {"total": answer, "held": True}
        try:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(5)
        except PermissionError:
            return {"total": answer, "held": True}
        return {"total": answer}

    def die(self, session, params, progress):
        total(session, half(session))
        os._exit(3)

    def change_mind(self, session, params, progress):
        """Asks another question each time it is started."""
        total(session, PrivacyLoss(session.allowance.kind, 10**11 + time.time_ns() % 10**6))
        time.sleep(params.wait_s)

    def snoop(self, session, params, progress):
        plain = {"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ"}
        plain.add("KMP_DUPLICATE_LIB_OK")  # threadpoolctl sets it wherever it is imported
        found = [
            f"{name}={value}"
            for name, value in os.environ.items()
            if name not in plain and not name.endswith("_NUM_THREADS")
        ]
        if params.target:
            found += self.attack_system(params.target[::-1], int(params.wait_s))
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{descriptor}")
            except OSError:
                continue
            if not target.startswith(("socket:", "pipe:", "/dev/null", "/proc/")):
                found.append(target)
        words = ("sqlite", "halftone-", "hk_", "HALFTONE_")
        kinds = {type(thing) for thing in gc.get_objects()}
        doors = ("sqlalchemy", "app.database", "app.storage")
        found += [repr(kind) for kind in kinds if str(kind.__module__).startswith(doors)]
        for value in vars(session).values():
            found += [repr(value) for word in words if word in repr(value)]
        inside = ("app.database", "app.settings", "app.engine.privacy.kernel")
        found += [name for name in inside if name in sys.modules]
        return {"found": found}

    def attack_system(self, store, port):
        """What only confinement by the kernel can keep from the same user's processes."""
        found = []
        for path in (store, f"/proc/{os.getppid()}/environ", f"/proc/{os.getppid()}/mem"):
            try:
                with open(path, "rb") as file:
                    found.append(f"{path}: {file.read(20)!r}")
            except OSError:
                pass
        try:
            sockets.create_connection(("127.0.0.1", port), 2).close()
            found.append("network")
        except OSError:
            pass
        return found

    def hand_callable(self, session, params, progress):
        spy = Remembering()
        name = session.schema.columns[0].name
        refused = 0
        for grouping in (spy, lambda rows: rows):
            try:
                session.count([Count((name,), {name: grouping}, Contribution())], half(session))
            except Exception:
                refused += 1
        frame = Frame({"type": "call", "function": "lambda rows: rows", "loss": 1})
        session._channel.send(frame)
        session._channel.receive()
        return {"refused": refused, "seen": spy.seen}

    def trust_me(self, session, params, progress):
        try:
            session.trusted_call(half(session))
        except QuestionRefused:
            return {"refused": True}

    def trusted(self, session, params, progress):
        return {"rows": session.trusted_call(half(session)).rows}

    def tell(self, session, params, progress):
        raise ValueError(f"{SECRET} {total(session, half(session))}")

    def print_and_die(self, session, params, progress):
        print(SECRET, total(session, half(session)), flush=True)
        os._exit(1)

    def flood_garbage(self, session, params, progress):
        while True:
            session._channel._connection.sendall(b"garbage " * 10_000)

    def flood_size(self, session, params, progress):
        header = b'{"arrays":[],"type":"count"}'
        start = b"HTF1" + len(header).to_bytes(4, "little") + (2**40).to_bytes(8, "little")
        session._channel._connection.sendall(start + header)
        session._channel.receive()

    def flood_progress(self, session, params, progress):
        for step in range(10**6):
            session._channel.send(
                Frame({"type": "progress", "fraction": step / 10**6, "stage": f"{step}"})
            )

    def flood_deaf(self, session, params, progress):
        """Asks without end and never reads an answer."""
        refused = pack(Frame({"type": "count", "queries": [], "shares": None, "groupings": [],
                              "loss": {"kind": "pure", "amount": 1, "delta": 0}}))
        while True:
            session._channel._connection.sendall(refused)

    def detach(self, session, params, progress):
        """Leaves a process behind that left its session and ignores signals."""
        total(session, half(session))
        middle = os.fork()
        if not middle:
            os.setsid()
            if os.fork():
                os._exit(0)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.execvp("sleep", ["sleep", params.target])
        os.waitpid(middle, 0)
        time.sleep(params.wait_s)

    def hang(self, session, params, progress):
        total(session, half(session))
        while True:
            pass

    def grow(self, session, params, progress):
        held = []
        while True:
            held.append(bytearray(2**26))

    def spoil(self, session, params, progress):
        """Hands in a model whose rows are outside the dictionary."""
        return {"spoil": True}
'''

"""Run the Dockerfile without Docker: each stage in a root of its own that starts out empty.

What it does: makes a private mount namespace, so nothing is mounted or left behind elsewhere;
gives each stage an empty directory as root; carries out COPY (through .dockerignore), ENV,
WORKDIR, USER and RUN in it with chroot; then cuts the network off, starts CMD as the image's
user, waits until HEALTHCHECK succeeds, takes the tour of examples/tour_httpx.py, and stops CMD
with SIGTERM as Docker would.

What it does not cover: the base image. This machine's /usr (read-only) and Python stand in for
python:3.11-slim, so a package that the slim image lacks is not missed here; nor image layers,
capabilities, seccomp, published ports and volumes. pip reads this machine's configuration.

Needs root, Linux, and the package registry that pip is configured for.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from string import Template

REPOSITORY = Path(__file__).resolve().parent.parent
FIRST_START_S = 90
STOP_S = 30
_CLONE_NEWNET = 0x40000000
_BASE_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEVICES = ("null", "zero", "full", "random", "urandom")


class Uncovered(Exception):
    """The Dockerfile holds something this script does not know how to carry out."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name, its `--flags`, and what remains."""

    name: str
    flags: dict[str, str]
    rest: str

    @property
    def command(self) -> list[str]:
        """The argument vector of RUN, CMD or HEALTHCHECK CMD, in exec or in shell form."""
        text = self.rest.removeprefix("CMD").strip()
        return json.loads(text) if text.startswith("[") else ["/bin/sh", "-c", text]


def instructions(dockerfile: str) -> Iterator[Instruction]:
    """The instructions in order, continued lines joined and comments dropped."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        name, rest = line.strip().split(None, 1)
        flags = {}
        while match := re.match(r"--([a-z-]+)=(\S+)\s*", rest):
            flags[match[1]] = match[2]
            rest = rest[match.end() :]
        yield Instruction(name.upper(), flags, rest)


class BuildContext:
    """The files that COPY may take: those that .dockerignore lets through."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        lines = (folder / ".dockerignore").read_text().splitlines()
        self._patterns = [line.strip() for line in lines if line.strip() and line[0] != "#"]

    def copy(self, source: str, target: Path) -> None:
        """Copy a file, or what is inside a folder, to `target`."""
        origin = self._folder / source
        files = sorted(origin.rglob("*")) if origin.is_dir() else [origin]
        sent = [path for path in files if path.is_file() and not self._is_ignored(path)]
        if not sent:
            raise Uncovered(f"COPY {source}: nothing of it is in the build context")
        for path in sent:
            copied = target / path.relative_to(origin) if origin.is_dir() else target
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copied)

    def _is_ignored(self, path: Path) -> bool:
        parts = path.relative_to(self._folder).parts
        prefixes = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        ignored = False
        for pattern in self._patterns:
            bare = pattern.removeprefix("!").strip("/")
            shapes = (bare, bare.removeprefix("**/"))
            if any(fnmatch(prefix, s) or (fnmatch(prefix, f"*/{s}") and "**" in bare)
                   for prefix in prefixes for s in shapes):  # fmt: skip
                ignored = not pattern.startswith("!")
        return ignored


@dataclass
class Stage:
    """A root under construction, with the environment that its instructions set."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: {"PATH": _BASE_PATH})
    workdir: str = "/"
    user: str = "root"
    cmd: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)

    def start(
        self, command: list[str], extra_env: dict[str, str], *, output: int | None = None
    ) -> subprocess.Popen[bytes]:
        """The command inside the root, as the stage's user, in its folder and environment."""
        env = {"HOME": "/root" if self.user == "root" else "/", **extra_env, **self.env}
        entered = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', self.workdir, *command]
        chroot = [_program("chroot"), f"--userspec={self.user}", str(self.root), *entered]
        return subprocess.Popen(
            chroot, env=env, start_new_session=True, stdout=output, stderr=output
        )

    def run(self, command: list[str], extra_env: dict[str, str] | None = None) -> int:
        return self.start(command, extra_env or {}).wait()

    def is_healthy(self) -> bool:
        """Whether HEALTHCHECK succeeds."""
        return not self.start(self.healthcheck, {}, output=subprocess.DEVNULL).wait()

    def inside(self, path: str) -> Path:
        """Where a path of the image, relative to its workdir or absolute, lies outside."""
        return self.root / os.path.join(self.workdir, path).lstrip("/")


class Build:
    """Carries out a Dockerfile, stage by stage, and holds the last one."""

    def __init__(self, folder: Path, context: BuildContext, host: Host) -> None:
        self._folder = folder
        self._context = context
        self._host = host
        self._stages: dict[str, Stage] = {}
        self._last: Stage | None = None

    @property
    def image(self) -> Stage:
        if self._last is None:
            raise Uncovered("there is no FROM")
        return self._last

    def carry_out(self, instruction: Instruction) -> None:
        step = getattr(self, f"_{instruction.name.lower()}", None)
        if step is None:
            raise Uncovered(f"no way to carry out {instruction.name}")
        step(instruction)

    def _from(self, instruction: Instruction) -> None:
        image, _, name = re.split(r"\s+", instruction.rest + " AS ", flags=re.I)[:3]
        if not image.startswith("python:3.11"):
            raise Uncovered(f"this machine's Python can't stand in for {image}")
        root = self._folder / f"stage-{len(self._stages)}"
        self._host.furnish(root)
        self._last = Stage(root)
        self._stages[name or str(len(self._stages))] = self._last

    def _workdir(self, instruction: Instruction) -> None:
        self.image.workdir = os.path.join(self.image.workdir, instruction.rest.strip())
        self.image.inside(".").mkdir(parents=True, exist_ok=True)

    def _user(self, instruction: Instruction) -> None:
        self.image.user = instruction.rest.strip()

    def _env(self, instruction: Instruction) -> None:
        for assignment in shlex.split(instruction.rest):
            name, value = assignment.split("=", 1)
            self.image.env[name] = Template(value).substitute(self.image.env)

    def _copy(self, instruction: Instruction) -> None:
        *sources, target = instruction.rest.split()
        for source in sources:
            place = self.image.inside(target)
            if "from" in instruction.flags:
                origin = self._stages[instruction.flags["from"]].inside(source)
                shutil.copytree(origin, place, symlinks=True, dirs_exist_ok=True)
            else:
                into = target.endswith("/") and not (REPOSITORY / source).is_dir()
                self._context.copy(source, place / Path(source).name if into else place)

    def _run(self, instruction: Instruction) -> None:
        if code := self.image.run(instruction.command, self._host.pip_env):
            raise SystemExit(f"RUN {instruction.rest}: exit status {code}")

    def _cmd(self, instruction: Instruction) -> None:
        self.image.cmd = instruction.command

    def _healthcheck(self, instruction: Instruction) -> None:
        self.image.healthcheck = instruction.command

    def _expose(self, instruction: Instruction) -> None:
        int(instruction.rest)

    def _volume(self, instruction: Instruction) -> None:
        if not self.image.inside(instruction.rest.strip()).is_dir():
            raise Uncovered(f"VOLUME {instruction.rest} does not exist")


class Host:
    """What an empty root borrows from this machine to stand in for the base image."""

    def __init__(self) -> None:
        self._python = Path(sys.base_prefix)
        self.pip_env = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("PIP_", "SSL_")) or name.lower().endswith("_proxy")
        }
        configured = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        settings = configured + " ".join(self.pip_env.values())
        named = re.findall(r"/[^\s'\",]+", settings)
        # An index on disk refers to packages in its own folder.
        named += [str(Path(path).parent) for path in re.findall(r"file://(/[^\s'\",]+)", settings)]
        files = [Path(path) for path in ("/etc/pip.conf", "/etc/xdg/pip", "/root/.config/pip")]
        present = {path for path in [*files, *map(Path, named)] if path.exists()}
        self._pip_paths = sorted(present - set(Path("/").glob("*")))

    def furnish(self, root: Path) -> None:
        """Fill an empty root: /usr and Python read-only, the rest fresh and small."""
        for name in ("etc", "root", "tmp", "proc", "dev/shm", "var/tmp", "home", "opt", "usr"):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "tmp").chmod(0o1777)
        self._bind(Path("/usr"), root)
        for name in ("bin", "sbin", "lib", "lib64"):
            if Path("/", name).is_symlink():
                (root / name).symlink_to(os.readlink(f"/{name}"))
            elif Path("/", name).exists():
                self._bind(Path("/", name), root)
        self._add_python(root)
        self._add_etc(root)
        for device in _DEVICES:
            self._bind(Path("/dev", device), root, writable=True)
        mount("-t", "tmpfs", "tmpfs", str(root / "dev/shm"))
        mount("--rbind", "/proc", str(root / "proc"))
        for path in self._pip_paths:
            if not (root / str(path).lstrip("/")).exists():
                self._bind(path, root)

    def _add_python(self, root: Path) -> None:
        """Python under its own path, where it was built to look for its library, and as the
        image has it: in /usr/local."""
        if not self._python.is_relative_to("/usr"):
            self._bind(self._python, root)
        mount("-t", "tmpfs", "tmpfs", str(root / "usr/local"))
        (root / "usr/local/lib").symlink_to(self._python / "lib")
        (root / "usr/local/bin").mkdir()
        for name in ("python", "python3", "python3.11"):
            (root / "usr/local/bin" / name).symlink_to(self._python / "bin/python3.11")

    def _add_etc(self, root: Path) -> None:
        etc = root / "etc"
        (etc / "passwd").write_text(
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
        )
        (etc / "group").write_text("root:x:0:\nnogroup:x:65534:\n")
        (etc / "shadow").write_text("root:*:1::::::\n")
        (etc / "gshadow").write_text("root:*::\n")
        for name in ("resolv.conf", "hosts", "nsswitch.conf", "ld.so.cache", "login.defs"):
            if Path("/etc", name).exists():
                shutil.copy2(Path("/etc", name), etc / name)
        if Path("/etc/ssl").is_dir():
            shutil.copytree("/etc/ssl", etc / "ssl", symlinks=False, ignore_dangling_symlinks=True)

    def _bind(self, path: Path, root: Path, *, writable: bool = False) -> None:
        target = root / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            target.touch()
        mount("--bind", str(path), str(target))
        if not writable:
            mount("-o", "remount,bind,ro", str(target))


def _program(name: str) -> str:
    """A program of this machine, by a path that no image's PATH can change."""
    found = shutil.which(name, path=_BASE_PATH)
    if found is None:
        raise SystemExit(f"this needs {name}")
    return found


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def leave_the_network() -> None:
    """Put this process, and what it starts, into a network of its own: a loopback alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    set_flags, up_and_running = 0x8914, 0x1 | 0x40
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, set_flags, struct.pack("16sh14x", b"lo", up_and_running))


def check_image(image: Stage) -> None:
    """CMD starts as an unprivileged user, is healthy, works, and stops on request."""
    if image.user in {"root", "0"}:
        raise SystemExit("the image runs as root")
    if image.is_healthy():
        raise SystemExit("HEALTHCHECK succeeds while nothing runs")
    key = "hk_" + secrets.token_urlsafe(32)
    service = image.start(image.cmd, {"HALFTONE_ADMIN_KEY": key})
    try:
        wait_until_healthy(image, service)
        owner = Path(f"/proc/{service.pid}").stat().st_uid
        print(f"healthy, running as uid {owner}")
        if owner == 0:
            raise SystemExit("CMD runs as root")
        tour = [sys.executable, str(REPOSITORY / "examples" / "tour_httpx.py")]
        subprocess.run([*tour, "http://127.0.0.1:8000", key], check=True)
        service.send_signal(signal.SIGTERM)
        code = service.wait(STOP_S)
        if code not in {0, -signal.SIGTERM, 128 + signal.SIGTERM}:
            raise SystemExit(f"CMD ended with exit status {code} on SIGTERM")
    finally:
        if service.poll() is None:
            os.killpg(service.pid, signal.SIGKILL)
            service.wait()


def wait_until_healthy(image: Stage, service: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + FIRST_START_S
    while not image.is_healthy():
        if service.poll() is not None:
            raise SystemExit(f"CMD ended with exit status {service.returncode}")
        if time.monotonic() > deadline:
            raise SystemExit(f"not healthy after {FIRST_START_S} s")
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    if os.geteuid():
        raise SystemExit("this needs root, to make roots and enter them")
    if not parser.parse_args().inside:
        again = [sys.executable, __file__, "--inside"]
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", *again])
    folder = Path(tempfile.mkdtemp(prefix="halftone-image-"))
    try:
        mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(folder))
        build = Build(folder, BuildContext(REPOSITORY), Host())
        for instruction in instructions((REPOSITORY / "Dockerfile").read_text()):
            print(f"{instruction.name} {instruction.rest}", flush=True)
            build.carry_out(instruction)
        leave_the_network()
        check_image(build.image)
    finally:
        subprocess.run(["umount", "--recursive", str(folder)], check=False)
        folder.rmdir()


if __name__ == "__main__":
    main()

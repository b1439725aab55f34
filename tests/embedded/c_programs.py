"""Compiling and running exported programs: on the host, on ARM under qemu, on AVR under simavr.

Every runner returns the integers a program gave. On the emulators the inputs come from a small
generator that is written once in C and once in Python, so that nothing has to be transferred.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror"]
SANITIZE = ["-O2", "-fsanitize=undefined,signed-integer-overflow", "-fno-sanitize-recover=all"]
DTYPES = {
    "int8_t": "<i1",
    "uint8_t": "<u1",
    "int16_t": "<i2",
    "uint16_t": "<u2",
    "int32_t": "<i4",
    "uint32_t": "<u4",
    "int64_t": "<i8",
    "float": "<f4",
}
HOST = """
#include <stdio.h>
#include "net.c"
int main(void)
{{
    static {x} x[NET_INPUTS];
    static {y} y[NET_OUTPUTS];
    while (fread(x, sizeof x, 1, stdin) == 1) {{
        (void)net_run(x, y);
        if (fwrite(y, sizeof y, 1, stdout) != 1)
            return 1;
    }}
    return 0;
}}
"""
#: 32-bit linear congruential generator; the upper half of every state chooses an input.
GENERATOR = """
static uint32_t state = {seed}UL;
static uint32_t draw(void) {{ state = state * 1664525UL + 1013904223UL; return state >> 16; }}
static {x} input({x} low, {x} high)
{{
    const uint32_t what = draw() & 3, a = draw(), b = draw();
    if (what == 0) return low;
    if (what == 1) return high;
    return ({x})((a << 16) | b);
}}
"""
ARM = """
#include <stddef.h>
#include "net.c"
{generator}
static const {x} low[] = {{ {low} }};
static const {x} high[] = {{ {high} }};
/* no C library: the kernel's write and exit, and what the compiler may call */
static long call(long number, long a, const void *b, long c)
{{
    register long r7 __asm__("r7") = number;
    register long r0 __asm__("r0") = a;
    register const void *r1 __asm__("r1") = b;
    register long r2 __asm__("r2") = c;
    __asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
    return r0;
}}
void *memcpy(void *to, const void *from, size_t n)
{{
    for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}}
void *memset(void *to, int v, size_t n)
{{
    for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = (char)v;
    return to;
}}
void _start(void)
{{
    static {x} x[NET_INPUTS];
    static {y} y[NET_OUTPUTS];
    for (long n = 0; n < {count}; n++) {{
        for (int j = 0; j < NET_INPUTS; j++) x[j] = input(low[j], high[j]);
        (void)net_run(x, y);
        (void)call(4, 1, y, sizeof y);
    }}
    (void)call(1, 0, 0, 0);
    for (;;) {{}}
}}
"""
AVR = """
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>
#include "net.c"
{generator}
static const {x} low[] PROGMEM = {{ {low} }};
static const {x} high[] PROGMEM = {{ {high} }};
static void put(char c) {{ while (!(UCSR0A & (1 << UDRE0))) {{}} UDR0 = (uint8_t)c; }}
static void show(int64_t v)
{{
    uint64_t bits = (uint64_t)v;
    for (int k = 60; k >= 0; k -= 4) put("0123456789abcdef"[(bits >> k) & 15]);
    put(' ');
}}
int main(void)
{{
    static {x} x[NET_INPUTS];
    static {y} y[NET_OUTPUTS];
    UBRR0 = 0;
    UCSR0A = 1 << U2X0;
    UCSR0B = 1 << TXEN0;
    for (long n = 0; n < {count}; n++) {{
        for (int j = 0; j < NET_INPUTS; j++) {{
            {x} lo, hi;
            memcpy_P(&lo, low + j, sizeof lo);
            memcpy_P(&hi, high + j, sizeof hi);
            x[j] = input(lo, hi);
        }}
        (void)net_run(x, y);
        put('=');
        for (int i = 0; i < NET_OUTPUTS; i++) show(y[i]);
        put('\\n');
    }}
    cli();
    sleep_mode();
    return 0;
}}
"""


def need(*tools: str) -> None:
    """Skip the test unless these commands are installed."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")


def run(command: list[str], cwd: Path, data: bytes = b"") -> bytes:
    """Run a command that has to succeed and to say nothing on stderr."""
    done = subprocess.run(command, cwd=cwd, input=data, capture_output=True)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()[-2000:]
    return done.stdout


def compile_host(source: str, kinds: tuple[str, str], folder: Path, *, sanitize: bool) -> Path:
    """The program as an executable from raw inputs to raw outputs; every warning is an error."""
    need("gcc")
    (folder / "net.c").write_text(source)
    (folder / "host.c").write_text(HOST.format(x=kinds[0], y=kinds[1]))
    flags = [*STRICT, *(SANITIZE if sanitize else ["-O3", "-march=native"])]
    run(["gcc", *flags, "-c", "net.c", "-o", "net.o"], folder)
    run(["gcc", *flags, "host.c", "-o", "host"], folder)
    return folder / "host"


def on_host(
    source: str,
    kinds: tuple[str, str],
    inputs: NDArray[np.generic],
    folder: Path,
    *,
    sanitize: bool = True,
) -> NDArray[np.generic]:
    """Outputs of the program compiled for this machine, with undefined behaviour trapped."""
    program = compile_host(source, kinds, folder, sanitize=sanitize)
    data = np.ascontiguousarray(inputs.astype(DTYPES[kinds[0]])).tobytes()
    raw = run([str(program)], folder, data)
    return np.frombuffer(raw, dtype=DTYPES[kinds[1]]).reshape(len(inputs), -1)


def check(source: str, folder: Path) -> None:
    """cppcheck finds nothing."""
    need("cppcheck")
    (folder / "net.c").write_text(source)
    known = ["unusedFunction", "missingIncludeSystem"]
    flags = [f"--suppress={word}" for word in known]
    run(
        ["cppcheck", "-q", "--enable=all", *flags, "--std=c99", "--error-exitcode=1", "net.c"],
        folder,
    )


def drawn(
    low: NDArray[np.int64], high: NDArray[np.int64], kind: str, count: int, seed: int = 1
) -> NDArray[np.int64]:
    """The inputs that the emulators' generator draws: ends of the domain, and any number at all."""
    state = seed

    def draw() -> int:
        nonlocal state
        state = (state * 1664525 + 1013904223) % 2**32
        return state >> 16

    rows = []
    for _ in range(count):
        row = []
        for lo, hi in zip(low.tolist(), high.tolist(), strict=True):
            what, a, b = draw() & 3, draw(), draw()
            number = np.array([(a << 16) | b], dtype=np.uint32).view("<u4")
            free = int(number.astype(DTYPES[kind]).astype(np.int64)[0])
            row.append(lo if what == 0 else hi if what == 1 else free)
        rows.append(row)
    return np.array(rows, dtype=np.int64)


def _filled(
    template: str,
    kinds: tuple[str, str],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    count: int,
    seed: int,
) -> str:
    return template.format(
        x=kinds[0],
        y=kinds[1],
        low=", ".join(map(str, low.tolist())),
        high=", ".join(map(str, high.tolist())),
        count=count,
        generator=GENERATOR.format(x=kinds[0], seed=seed),
    )


def on_arm(
    source: str,
    kinds: tuple[str, str],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    count: int,
    folder: Path,
    seed: int = 1,
) -> NDArray[np.int64]:
    """Outputs on a 32-bit ARM under qemu for the inputs `drawn` gives.

    The program is compiled for a Cortex-M4 with every warning an error, and run as ARMv7.
    """
    need("arm-none-eabi-gcc", "qemu-arm")
    (folder / "net.c").write_text(source)
    (folder / "arm.c").write_text(_filled(ARM, kinds, low, high, count, seed))
    compiler = ["arm-none-eabi-gcc", "-ffreestanding"]
    run([*compiler, *STRICT, "-O2", "-mcpu=cortex-m4", "-mthumb", "-c", "net.c"], folder)
    link = [
        "-marm",
        "-march=armv7-a",
        "-nostdlib",
        "-static",
        "-Wl,-Ttext=0x10000,-z,max-page-size=4096",
    ]
    run([*compiler, "-O2", "-fno-builtin", *link, "arm.c", "-lgcc", "-o", "arm.elf"], folder)
    raw = run(["qemu-arm", "arm.elf"], folder)
    return np.frombuffer(raw, dtype=DTYPES[kinds[1]]).reshape(count, -1).astype(np.int64)


def on_avr(
    source: str,
    kinds: tuple[str, str],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    count: int,
    folder: Path,
    seed: int = 1,
) -> NDArray[np.int64]:
    """Outputs on an ATmega328P under simavr for the inputs `drawn` gives."""
    need("avr-gcc", "simavr")
    (folder / "net.c").write_text(source)
    (folder / "avr.c").write_text(_filled(AVR, kinds, low, high, count, seed))
    device = "-mmcu=atmega328p"
    run(["avr-gcc", device, *STRICT, "-Os", "-c", "net.c"], folder)
    run(["avr-gcc", device, "-std=c99", "-Os", "avr.c", "-o", "avr.elf"], folder)
    done = subprocess.run(
        ["simavr", "-m", "atmega328p", "-f", "16000000", "avr.elf"], cwd=folder, capture_output=True
    )
    text = (done.stdout + done.stderr).decode(errors="replace")
    rows = []
    for line in text.splitlines():
        if (
            "=" in line
            and line.count(" ")
            and all(len(w) == 16 for w in _words(line) if set(w) <= set("0123456789abcdef"))
        ):
            words = [w for w in _words(line) if len(w) == 16]
            if words:
                rows.append([int(np.uint64(int(w, 16)).astype(np.int64)) for w in words])
    return np.array(rows, dtype=np.int64)


def _words(line: str) -> list[str]:
    return line.split("=", 1)[1].replace(".", " ").split()


if __name__ == "__main__":
    sys.exit("a collection of runners; see the tests beside it")

#!/usr/bin/env python3
"""Reads the kernel's mlx5_ifc.h for uverbs-mlx5-prm's tests of the command interface.

    mlx5_ifc.py --include PATH/include/linux/mlx5 --out providers/mlx5-prm/tests/fixtures
    mlx5_ifc.py --users RDMA-CORE/providers/mlx5/mlx5_ifc.h --out providers/mlx5-prm/tests/fixtures

The headers (mlx5_ifc.h and mlx5_ifc_fpga.h, which it needs) come with Debian's linux-headers-*-common. They describe bits by arrays of bytes, one element for one bit, so the
place of a field is the sum of what stands before it. What goes into ifc.tsv: the numbers of the
commands, of statuses and of events, and every field and structure inside a structure of
the structures that the Rust side has, which are those named in the present ifc.tsv, or after --add.

What only users fill in or ask for the kernel's header leaves reserved; rdma-core's has it, and what of that
is used goes into ifc_users.tsv.
"""

import argparse
import pathlib
import re
import sys

ITEM = re.compile(
    r"\s*(?:u8\s+(?P<field>\w+)\s*(?P<dims>(?:\[[^\]]*\])+)\s*;"
    r"|(?:struct|union)\s+(?P<type>\w+)\s+(?P<name>\w+)\s*(?P<count>(?:\[[^\]]*\])*)\s*;"
    r"|(?P<kind>struct|union)\s*\{)"
)
NUMBER = re.compile(r"^\s*(MLX5_\w+)\s*=\s*(0x[0-9a-fA-F]+|\d+)\s*,?\s*$", re.M)
PREFIXES = [
    "MLX5_CMD_OP_", "MLX5_CMD_STAT_", "MLX5_EVENT_TYPE_", "MLX5_PORT_CHANGE_SUBTYPE_", "MLX5_CMD_DATA_BLOCK_SIZE",
    "MLX5_PFAULT_SUBTYPE_", "MLX5_WQE_PF_TYPE_",
]
# Ranges, modifiers of opcodes, and names that mlx5_ifc.h has for the events of device.h.
NOT_NUMBERS = {"MLX5_CMD_OP_GENERAL_START", "MLX5_CMD_OP_GENERAL_END", "MLX5_CMD_OP_MOD_UPDATE_HEADER_MODIFY_ARGUMENT"}
# What is taken from rdma-core's header.
USERS = {
    "cmd_hca_cap": ["log_dma_mmo_max_size", "rts2rts_qp_udp_sport", "rts2rts_lag_tx_port_affinity", "dma_mmo_sq",
        "lag_tx_port_affinity", "num_lag_ports", "dma_mmo_qp"],
    "cmd_hca_cap_2": ["log_reserved_qpn_granularity"],
    "lagc": ["lag_state", "tx_remap_affinity_2", "tx_remap_affinity_1"],
    "qpc": ["dbr_umem_id"],
    "rts2rts_qp_in": ["qpc_ext", "opt_param_mask_95_32"],
}
# One name lacks the end that all others have.
BLOCK = re.compile(r"^(struct|union)\s+mlx5_ifc_(\w+?)(?:_bits)?\s*\{(.*?)^\};", re.S | re.M)


def product(dims):
    total = 1
    for number in re.findall(r"\[([^\]]*)\]", dims):
        total *= int(number, 0) if number else 0
    return total


def parse(body):
    items, at = [], 0
    while match := ITEM.match(body, at):
        at = match.end()
        if match["field"]:
            items.append(("field", match["field"], product(match["dims"])))
        elif match["type"]:
            kind = match["type"].removeprefix("mlx5_ifc_").removesuffix("_bits")
            items.append(("named", match["name"], kind, product(match["count"])))
        else:
            depth, start = 1, at
            while depth:
                depth += {"{": 1, "}": -1}.get(body[at], 0)
                at += 1
            inner = parse(body[start:at - 1])
            at = re.compile(r"\s*\w*\s*;").match(body, at).end()
            items.append((match["kind"], inner))
    if body[at:].strip():
        raise ValueError(body[at:].strip()[:60])
    return items


class Header:
    def __init__(self, text):
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        # An array at the end takes no bits.
        text = re.sub(r"DECLARE_FLEX_ARRAY\([^)]*\);", "", text)
        self.text = text
        self.blocks = {}
        for kind, name, body in BLOCK.findall(text):
            try:
                self.blocks[name] = (kind, parse(body))
            except ValueError:
                pass  # a macro of the kernel's: asked for only if somebody needs this structure

    def width(self, item):
        match item:
            case ("field", _, width):
                return width
            case ("named", _, kind, count):
                return self.total(*self.blocks[kind]) * count
            case (kind, items):
                return self.total(kind, items)

    def total(self, kind, items):
        widths = [self.width(item) for item in items]
        return (max if kind == "union" else sum)(widths) if widths else 0

    def rows(self, kind, items, at=0):
        for item in items:
            match item:
                case ("field", name, width):
                    if not name.startswith("reserved_at_"):
                        yield name, at, width
                case ("named", name, _, _):
                    yield name, at, self.width(item)
                case (inner, fields):
                    yield from self.rows(inner, fields, at)
            if kind != "union":
                at += self.width(item)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--include", type=pathlib.Path)
    arguments.add_argument("--users", type=pathlib.Path)
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--add", nargs="*", default=[])
    options = arguments.parse_args()
    if options.users:
        header = Header(options.users.read_text())
        rows = [(name, row) for name in USERS for row in header.rows(*header.blocks[name]) if row[0] in USERS[name]]
        lines = [f"{name}\t{field}\t{bit}\t{width}\n" for name, (field, bit, width) in rows]
        (options.out / "ifc_users.tsv").write_text("".join(lines))
        return
    header = Header("".join((options.include / name).read_text() for name in ["mlx5_ifc.h", "mlx5_ifc_fpga.h"]))
    table = options.out / "ifc.tsv"
    known = set(options.add)
    if table.exists():
        known |= {line.split("\t")[0] for line in table.read_text().splitlines()} - {"#"}
    lines = []
    for name in sorted(known):
        if name not in header.blocks:
            sys.exit(f"mlx5_ifc_{name}_bits isn't there")
        kind, items = header.blocks[name]
        lines.append(f"{name}\t-\t0\t{header.total(kind, items)}")
        lines += [f"{name}\t{field}\t{bit}\t{width}" for field, bit, width in header.rows(kind, items)]
    # Numbers: the opcodes, and of device.h what the Rust side has names for.
    numbers = dict(NUMBER.findall(header.text + (options.include / "device.h").read_text()))
    for prefix in PREFIXES:
        found = [(name, number) for name, number in numbers.items() if name.startswith(prefix) and name not in NOT_NUMBERS]
        lines += [f"#\t{name}\t{int(number, 0)}\t0" for name, number in sorted(found)]
    table.write_text("\n".join(lines) + "\n")


main()

#!/usr/bin/env python3
"""Writes c-abi/tests/fixtures/layout.tsv from libibverbs' verbs.h.

    python3 xtask/layouts/c_abi.py --verbs-include DIR [--include DIR]... [--later-include DIR] [--out DIR]

--verbs-include   where infiniband/verbs.h is, as libibverbs-dev has it
--include         where rdma/*.h is
--later-include   where a later infiniband/verbs.h is: layout_later.tsv has the structs that differ there
--out             where the tables go

Rows are those of kernel_abi.py. The structs are those that c-abi/src/sys declares.
"""

import argparse, pathlib, re

from kernel_abi import Types, debug_entries


# Structs without a name of their own in C: kernel_abi.py names them so.
NESTED = {
    "ibv_send_wr_rdma",
    "ibv_send_wr_atomic",
    "ibv_send_wr_ud",
    "ibv_odp_caps_per_transport_caps",
    "ibv_ops_wr_tm",
    "ibv_ops_wr_tm_add",
}


def layouts(wanted, include):
    types, found = Types(debug_entries("#include <infiniband/verbs.h>\n", include)), {}
    for entry in types.entries.values():
        if entry["tag"] == "structure_type" and entry.get("name") in wanted and "byte_size" in entry:
            types.rows(entry["name"], entry, found)
    lost = (wanted | NESTED) - found.keys()
    assert not lost, f"not in verbs.h: {sorted(lost)}"
    return {name: rows for name, rows in found.items() if name in wanted | NESTED}


def write(path, structs):
    with open(path, "w") as f:
        for name, (fields, size) in sorted(structs.items()):
            for field, offset, length, _ in fields:
                print(name, field, offset, length, sep="\t", file=f)
            print(name, "", "", size, sep="\t", file=f)


def shape(layout):
    fields, size = layout
    return [row[:3] for row in fields], size


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--include", action="append", default=[])
    args.add_argument("--verbs-include", required=True)
    args.add_argument("--later-include")
    args.add_argument("--out", type=pathlib.Path, default=root / "c-abi/tests/fixtures")
    args = args.parse_args()

    sources = "".join(path.read_text() for path in sorted((root / "c-abi/src/sys").glob("*.rs")))
    wanted = set(re.findall(r"^pub struct ((?:ibv|verbs)_\w+)", sources, re.M)) | {"ibv_sge"}
    wanted -= NESTED | {"ibv_gid"}  # a union
    include = [f"-I{folder}" for folder in args.include]
    now = layouts(wanted, [f"-I{args.verbs_include}", *include])
    write(args.out / "layout.tsv", now)
    if args.later_include:
        later = layouts(wanted, [f"-I{args.later_include}", *include])
        write(args.out / "layout_later.tsv", {n: l for n, l in later.items() if shape(l) != shape(now[n])})


if __name__ == "__main__":
    main()
